// Package model describes a language model as a config, side files or
// metadata, and an ordered list of lazy tensors. A Model is immutable: stages
// return changed copies whose tensors read from the ones below.
package model

import (
	"context"
	"fmt"

	"quern/tensor"
)

// Form says which naming, layout and metadata a Model has.
type Form int

// HF is the Hugging Face checkpoint form: config.json, tokenizer files and
// PyTorch tensor names. GGUF is llama.cpp's: key-value metadata and its names,
// Q and K rows permuted where the architecture wants it. KMCU is the
// microcontroller container's.
const (
	HF Form = iota + 1
	GGUF
	KMCU
)

// String names the form in messages.
func (f Form) String() string {
	switch f {
	case HF:
		return "Hugging Face"
	case GGUF:
		return "GGUF"
	case KMCU:
		return "KMCU"
	}
	return fmt.Sprintf("Form(%d)", int(f))
}

// FileInfo names one file of a FileSet. SHA256 is lower-case hex, empty when
// the set does not know it without reading.
type FileInfo struct {
	Path   string
	Size   int64
	SHA256 string
}

// FileSet is a folder of model files, local or remote. Paths use slashes and
// are relative. Listing order is by path, byte-wise.
type FileSet interface {
	// Name is the folder's or repository's last name, which converters put
	// into general.name.
	Name() string
	List(ctx context.Context) ([]FileInfo, error)
	// ReadFile returns a whole small file and fails, before reading, when it
	// is larger than limit. A missing file is fs.ErrNotExist.
	ReadFile(ctx context.Context, path string, limit int64) ([]byte, error)
	// Open gives random access to a large file.
	Open(ctx context.Context, path string) (tensor.Blob, error)
}
