// Package hubtest is a Hugging Face hub for tests: two loopback listeners, the
// hub and its storage host, that answer as the public service does, and
// misbehave on command as it, its storage and its mirrors have been seen to.
//
// What it imitates: 302 to signed storage addresses for LFS files with the
// X-Linked-* headers and a storage ETag that is not the digest; 307 to
// /api/resolve-cache for files in git; trees in pages with directories;
// siblings that name the digest in another way; renamed, private, gated and
// disabled repositories; tokens; rate limits; Xet headers. Faults are added
// with Inject and hit chosen requests.
//
// Every request is kept in a log with what it asked and how many bytes it got,
// so that tests can count, and a token that turns up at the storage host or at
// the hostile host is a violation, which New reports as a test failure.
package hubtest
