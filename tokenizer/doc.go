// Package tokenizer reads the tokenizer files of a language model and writes
// the tokenizer part of a GGUF file exactly as llama.cpp v0.5.0's converter
// does; it also encodes and decodes text with the vocabulary of a GGUF file.
//
// Three forms of one tokenizer meet here:
//
//   - SentencePiece: tokenizer.model, a protocol buffer of scored pieces;
//   - Hugging Face: tokenizer.json (vocabulary, merges, added tokens and the
//     steps around them) with tokenizer_config.json and its like;
//   - GGUF: the keys tokenizer.ggml.* and tokenizer.chat_template.
//
// Load goes from the first two to the third: a Vocabulary, whose Keys method
// gives GGUF keys in the converter's order. FromGGUF reads them back. New
// makes a Tokenizer that splits and joins text as llama.cpp does.
package tokenizer
