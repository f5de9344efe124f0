package safetensors

import (
	"errors"

	"quern/formats/internal/alien"
)

var (
	// ErrHeader marks a header that breaks a rule of the format.
	ErrHeader = errors.New("bad safetensors header")
	// ErrHeaderLimit marks a header longer than Options.MaxHeader allows.
	ErrHeaderLimit = errors.New("safetensors header over the limit")
	// ErrTruncated marks a file that ends before its header or tensors do.
	ErrTruncated = errors.New("truncated safetensors file")
	// ErrLFSPointer marks the text that Git LFS leaves in place of a file.
	ErrLFSPointer = alien.ErrLFSPointer
	// ErrHTML marks a web page that was saved under a model file's name.
	ErrHTML = alien.ErrHTML
	// ErrFormat marks a file of another known format.
	ErrFormat = errors.New("not a safetensors file")
	// ErrIndex marks a shard index that is malformed or names unsafe paths.
	ErrIndex = errors.New("bad shard index")
	// ErrShards marks an index and shards that do not agree.
	ErrShards = errors.New("index and shards disagree")
	// ErrNoWeights marks a folder without safetensors weights.
	ErrNoWeights = errors.New("no safetensors weights")
	// ErrWrite marks tensors that the format cannot hold.
	ErrWrite = errors.New("cannot be written as safetensors")
	// ErrScale marks FP8 weights whose block scales are missing or misshapen.
	ErrScale = errors.New("bad FP8 block scale")
)
