// Package hub reads model files from a Hugging Face hub, a mirror of one, or
// any HTTP server, by byte ranges and without trusting what comes back.
//
// A Client pins a revision to a commit (Snapshot) and gives its files as
// tensor.Blobs. Ranges land in a sparse spool file keyed by the content's
// digest, so that a killed build goes on where it was; without a spool folder
// they live in bounded memory only. The cache that other Hugging Face tools
// keep is read in place and never written.
//
// The protocol rules are those of huggingface_hub (Python) as its sources
// have them; docs/hub.md lists the ones that matter to a reader.
package hub
