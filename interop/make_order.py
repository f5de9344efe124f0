"""Writes testdata/golden/runtime/ggml-order.json: digests of logits that llama.cpp's CPU backend computes with its defaults (trace_peer.cpp), which
`--order ggml` must give to the bit.

The models are the stories models and the tiny ones of make_logits.py, in GGUF by the real converter, made into one type by llama-quantize --pure. A text
has the ids 3 + (i*i*37 + i*11) mod (min(vocabulary, 500) - 3), i counting from 0; chunks of `context` tokens follow one another, the first token of each
replaced by `bos` where that is not -1. `sha256` is that of the float32 logits after the tokens of the second half of every chunk, little-endian, -0 as 0, in order; `first` are
eight of the first row. `other` is the type of matrices whose rows the type does not divide.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import common
import make_logits

# model, type, context, chunks
STORIES = [
    *(("stories260k", kind, 96, 2) for kind in ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL"]),
    *(("stories-wide", kind, 68, 1) for kind in ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ3_S", "TQ1_0", "TQ2_0"]),
    ("stories260k", "Q8_0", 512, 3),  # of three texts the physical batches leave two tokens each
    ("stories260k", "Q4_0", 100, 6),  # texts of fewer tokens than a tile of queries
    ("stories260k", "Q4_0", 8, 5),  # the smallest context that llama-perplexity takes
    ("stories-wide", "Q4_K", 35, 3),
    ("stories260k", "Q4_1", 600, 2),
    ("stories-moe", "Q8_0", 66, 1),
    ("stories-moe", "Q4_0", 66, 1),
]
# Models whose small vocabulary allows a text that fills a tile of queries.
TILED = ["tiny-gemma3", "linear in Gemma 3", "a window of 5 in Gemma 3", "tiny-llama-hf", "tiny-llama-tied", "tiny-mistral", "tiny-mixtral", "llama3 in Llama without head_dim", "yarn in Mistral", "yarn in Mixtral"]
# Experts of grid types take eight rows and more together.
WIDE = [("IQ4_XS", 68, 1), ("IQ4_XS", 12, 2), ("IQ3_S", 68, 1), ("Q4_K", 68, 1)]


def ids(count, vocab):
    return [3 + (i * i * 37 + i * 11) % (min(vocab, 500) - 3) for i in range(count)]


def golden(f32, kind, context, chunks, work):
    file = f32
    if kind != "F32":
        file = work / "typed.gguf"
        common.quantize(f32, file, kind, "--pure")
    sys.path.insert(0, str(common.sources() / "gguf-py"))
    from gguf import GGUFReader

    tensors = GGUFReader(file).tensors
    vocab = int(next(t for t in tensors if t.name == "token_embd.weight").shape[1])
    others = {t.tensor_type.name for t in tensors if len(t.shape) > 1 and t.tensor_type.name not in (kind, "F32")}
    assert len(others) <= 1, others
    text = ids(context * chunks, vocab)
    said = subprocess.run([common.tool("trace_peer"), file, str(context), work], input=" ".join(map(str, text)).encode(), check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    logits = np.fromfile(work / "logits.f32", "<f4") + np.float32(0)
    entry = {"type": kind, "context": context, "chunks": chunks, "bos": int(said), "vocab": vocab}
    if others:
        entry["other"] = others.pop()
    entry["first"] = [float(str(v)) for v in logits[:8]]
    entry["sha256"] = hashlib.sha256(logits.tobytes()).hexdigest()
    return entry


def main():
    out = []
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        for name, kind, context, chunks in STORIES:
            f32 = work / f"{name}.gguf"
            if not f32.exists():
                common.convert(common.TESTDATA / "models" / name, f32, "--outtype", "f32")
            out.append({"model": name, **golden(f32, kind, context, chunks, work)})
            print(out[-1], flush=True)
        for title in [*make_logits.MODELS, *make_logits.VARIANTS, "wide-mixtral"]:
            name, config = make_logits.VARIANTS.get(title, (title, make_logits.SETTINGS.get(title, {})))
            f32 = work / "tiny.gguf"
            with tempfile.TemporaryDirectory() as at:
                common.convert(make_logits.folder(name, Path(at), config), f32, "--outtype", "f32")
            # Heads of large vocabularies take scalar code long.
            tiny = [("F32", 10, 1)] + [("Q8_0", 66, 1)] * (title in TILED)
            for kind, context, chunks in WIDE if title == "wide-mixtral" else tiny:
                out.append({"model": name, "config": config, **golden(f32, kind, context, chunks, work)})
                print(out[-1], flush=True)
    path = common.TESTDATA / "golden/runtime/ggml-order.json"
    path.write_text("[\n" + ",\n".join(json.dumps(e, separators=(",", ":")) for e in out) + "\n]\n")


if __name__ == "__main__":
    main()
