"""Writes testdata/ggml/libm.json: single-precision functions of this machine's C library, which package ggmlnum must give to the bit.

The peer is glibc 2.36 on a processor with FMA. Value number i of a function comes from splitmix64, z = mix(i): for even i the bits z >> 32, for odd i
((z >> 40) - 2^23) * 2^-23 * `range`. powf takes the magnitude of that, and as the second argument the same number of mix(i + 2^32) with a range of 4. A result that is no
number counts as 0x7fc00000. `sha256` is that of `count` results, little-endian; `values` are [arguments..., result] as bits.
"""

import ctypes
import hashlib
import json

import numpy as np

import common
from weights import GAMMA, draws

COUNT = 1 << 19
RANGES = {"expf": 110, "logf": 1000, "sinf": 9000, "cosf": 300, "tanhf": 12, "powf": 1e6}


def arguments(first, limit):
    i = np.arange(first, first + COUNT, dtype=np.uint64)
    z = draws(first * GAMMA % 2**64, COUNT)
    raw = (z >> np.uint64(32)).astype(np.uint32).view(np.float32)
    even = ((z >> np.uint64(40)).astype(np.float64) - 2.0**23) * 2.0**-23 * limit
    return np.where(i % 2 == 0, raw, even.astype(np.float32))


def main():
    libm = ctypes.CDLL("libm.so.6")
    out = []
    for name, limit in RANGES.items():
        f = getattr(libm, name)
        f.restype = ctypes.c_float
        x = [arguments(0, limit)]
        if name == "powf":
            x = [np.abs(x[0]), arguments(1 << 32, 4)]
        f.argtypes = [ctypes.c_float] * len(x)
        y = np.array([f(*(float(v) for v in row)) for row in zip(*x)], dtype=np.float32)
        bits = np.where(np.isnan(y), np.uint32(0x7FC00000), y.view(np.uint32)).astype("<u4")
        values = [[int(v.view(np.uint32)[i]) for v in x] + [int(bits[i])] for i in range(24)]
        out.append({"name": name, "range": limit, "count": COUNT, "sha256": hashlib.sha256(bits.tobytes()).hexdigest(), "values": values})
        print(name, out[-1]["sha256"], flush=True)
    path = common.TESTDATA / "ggml/libm.json"
    path.write_text("[\n" + ",\n".join(json.dumps(e, separators=(",", ":")) for e in out) + "\n]\n")


if __name__ == "__main__":
    main()
