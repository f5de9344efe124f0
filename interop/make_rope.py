"""Writes testdata/convert/rope_freqs.json: the llama3 rope factors that the real converter computes with torch.

base ** (k / dim) goes through torch's vectorised float32 pow, which is not correctly rounded everywhere; these are the numbers to match.
Factors are given as float32 bit patterns.
"""

import json
import subprocess
import sys

import common

CONFIGS = [
    # name, head_dim, rope_theta, factor, low, high, original context
    ["Llama 3.1", 128, 500000.0, 8.0, 1.0, 4.0, 8192], ["Llama 3.2 1B", 64, 500000.0, 32.0, 1.0, 4.0, 8192],
    ["Llama 3.2 3B", 128, 500000.0, 32.0, 1.0, 4.0, 8192], ["tiny", 16, 500000.0, 32.0, 1.0, 4.0, 8192],
    ["short context", 64, 10000.0, 4.0, 1.0, 4.0, 2048], ["wide", 256, 1000000.0, 16.0, 1.0, 8.0, 4096],
    ["odd numbers", 80, 250000.0, 3.5, 0.75, 3.25, 5000], ["close bands", 128, 500000.0, 8.0, 1.0, 1.5, 8192],
    ["head of 96", 96, 10000.0, 8.0, 2.0, 4.0, 8192], ["head of 8", 8, 10000.0, 8.0, 1.0, 4.0, 512],
]

# Runs inside the tools' environment: LlamaModel.generate_extra_tensors itself, on an object that has only what it reads.
PROBE = """
import json, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
import torch
from conversion.llama import LlamaModel
out = []
for name, dim, base, factor, low, high, context in json.load(sys.stdin):
    m = object.__new__(LlamaModel)
    m.hparams = {"head_dim": dim}
    m.rope_parameters = {"rope_type": "llama3", "rope_theta": base, "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
                         "original_max_position_embeddings": context}
    with torch.inference_mode():
        (_, t), = m.generate_extra_tensors()
    out.append([x & 0xffffffff for x in t.view(torch.int32).tolist()])
print(json.dumps(out))
"""


def probe(capability):
    env = dict(common.environment(), ATEN_CPU_CAPABILITY=capability)
    done = subprocess.run([common.cache() / "venv/bin/python", "-c", PROBE, common.sources()], input=json.dumps(CONFIGS).encode(),
                          stdout=subprocess.PIPE, env=env, check=True)
    return json.loads(done.stdout)


def main():
    got = {c: probe(c) for c in ("default", "avx2", "avx512")}
    for c, factors in got.items():
        for config, a, b in zip(CONFIGS, got["default"], factors):
            bad = [i for i, (x, y) in enumerate(zip(a, b)) if x != y]
            if bad:
                print(f"{config[0]}: {c} differs from scalar code at {bad}", file=sys.stderr)
    fields = ["name", "head_dim", "rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]
    docs = [json.dumps({**dict(zip(fields, c)), "factors": [f"{x:08x}" for x in f]}) for c, f in zip(CONFIGS, got["avx2"])]
    (common.GOLDENS / "rope_freqs.json").write_text("[\n" + ",\n".join(docs) + "\n]\n")


if __name__ == "__main__":
    main()
