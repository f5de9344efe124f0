"""Differential fuzz of tensor/quant against the real libggml, type by type.

    fuzz_types.py ENCODER [--seconds N] [--types q4_K,...] [--seed N]

ENCODER is interop/encoder, built. Rows of many distributions and widths are quantized by both, plain and with importance weights, and the bytes
compared; random bytes of each type are decoded by both, and the values compared bit by bit. N seconds go to each type. The library is the
prebuilt one of the npm package @node-llama-cpp/linux-x64.
"""

import argparse
import ctypes
import struct
import subprocess
import sys
import time

import numpy as np

import common

LIB = "npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libggml-base.so"
# name: id, needs weights, looks at weights
TYPES = {"f16": (1, 0, 0), "q4_0": (2, 0, 1), "q4_1": (3, 0, 1), "q5_0": (6, 0, 1), "q5_1": (7, 0, 1), "q8_0": (8, 0, 0), "q2_K": (10, 0, 1), "q3_K": (11, 0, 1),
         "q4_K": (12, 0, 1), "q5_K": (13, 0, 1), "q6_K": (14, 0, 1), "iq2_xxs": (16, 1, 1), "iq2_xs": (17, 1, 1), "iq3_xxs": (18, 0, 1), "iq1_s": (19, 1, 1),
         "iq4_nl": (20, 0, 1), "iq3_s": (21, 0, 1), "iq2_s": (22, 0, 1), "iq4_xs": (23, 0, 1), "iq1_m": (29, 0, 1), "bf16": (30, 0, 0), "tq1_0": (34, 0, 0),
         "tq2_0": (35, 0, 0), "mxfp4": (39, 0, 0), "nvfp4": (40, 0, 0), "q1_0": (41, 0, 0), "q2_0": (42, 0, 0)}


class Traits(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("block", ctypes.c_int64), ("interleave", ctypes.c_int64), ("size", ctypes.c_size_t), ("quantized", ctypes.c_bool),
                ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)), ("from_float", ctypes.c_void_p)]


def library():
    lib = ctypes.CDLL(str(common.cache() / LIB))
    lib.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return lib


def plain(rng, n):
    """n values of one of many distributions."""
    x = rng.standard_normal(n, dtype=np.float32)
    match rng.integers(12):
        case 0:
            x = x * x * x
        case 1:
            x = rng.laplace(size=n)
        case 2:
            x = rng.uniform(-1, 1, n)
        case 3:
            x = np.where(rng.random(n) < 0.9, 0, x)
        case 4:
            x = np.full(n, rng.standard_normal())
        case 5:
            x = np.where(rng.random(n) < 0.02, x * 100, x)
        case 6:
            x = np.round(x * 4) / 4  # ties
        case 7:
            x = np.abs(x)
        case 8:
            x = -np.abs(x)
        case 9:
            x = np.sin(np.arange(n) / rng.uniform(0.3, 30))
        case 10:
            x = np.where(np.arange(n) % 256 < rng.integers(256), x, 0)
    return np.asarray(x, np.float32)


def values(rng, rows, row):
    x = np.concatenate([plain(rng, row) for _ in range(rows)]).reshape(rows, row)
    scale = rng.choice([1, 0.02, 1e-3, 1e-7, 1e-16, 1e-30, 1e-40, 300.0])
    x = (x * np.float32(scale)).astype(np.float32)
    if rng.random() < 0.3:  # blocks of very different size beside each other
        x *= np.exp2(rng.integers(-20, 8, (rows, row // 32)).repeat(32, 1)).astype(np.float32)
    if rng.random() < 0.1:
        x[rng.random(x.shape) < 0.3] *= 0  # both zeros
    if rng.random() < 0.3:
        x = x.astype(np.float16).astype(np.float32)
    return np.ascontiguousarray(np.nan_to_num(x, posinf=1, neginf=-1))


def importance(rng, row):
    match rng.integers(8):
        case 0:
            w = rng.random(row)
        case 1:
            w = np.ones(row)
        case 2:
            w = np.where(rng.random(row) < 0.5, 0, rng.random(row))
        case 3:
            w = np.where(np.arange(row) // 32 % 2, rng.random(row), 0)
        case 4:
            w = rng.random(row) * 1e-38
        case 5:
            w = np.exp(rng.standard_normal(row) * 3)
        case 6:
            w = rng.random(row) * 1e6
        case 7:
            w = np.zeros(row)
    return np.asarray(w, np.float32)


class Encoder:
    def __init__(self, path):
        self.p = subprocess.Popen([str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, head, *parts, size):
        self.p.stdin.write(struct.pack("<5I", *head))
        for part in parts:
            self.p.stdin.write(part.tobytes())
        self.p.stdin.flush()
        out = self.p.stdout.read(size)
        if len(out) != size:
            sys.exit(f"the encoder stopped on {head}")
        return out


def fuzz(lib, enc, name, seconds, rng):
    """Compares one type for a while; gives how many values and the first differences."""
    tid, needs, looks = TYPES[name]
    traits = lib.ggml_get_type_traits(tid).contents
    lib.ggml_quantize_init(tid)
    end, done, decoded, bad = time.monotonic() + seconds, 0, 0, []
    while time.monotonic() < end and len(bad) < 3:
        block = max(traits.block, 32)
        row = int(block * rng.integers(1, 1 + max(1, 2048 // block)))
        rows = int(rng.integers(1, 9))
        x = values(rng, rows, row)
        w = importance(rng, row) if needs or looks and rng.random() < 0.5 else None
        size = row // traits.block * traits.size * rows
        want = np.zeros(size, np.uint8)
        lib.ggml_quantize_chunk(tid, x.ctypes.data, want.ctypes.data, 0, rows, row, w.ctypes.data if w is not None else None)
        answer = enc.ask((tid, row, rows, w is not None, 0), x, *([w] if w is not None else []), size=size + 4 * row * rows)
        got = np.frombuffer(answer[:size], np.uint8)
        done += rows * row
        if (got != want).any():
            at = int(np.nonzero(got != want)[0][0]) // traits.size
            first = at * traits.block
            bad.append(("encode", row, rows, at, x.ravel()[first : first + traits.block].tolist(), None if w is None else w[first % row : first % row + traits.block].tolist()))
        # and back, also from bytes that no encoder gives
        data = rng.integers(0, 256, size, np.uint8) if rng.random() < 0.5 else want
        back = np.zeros(rows * row, np.float32)
        traits.to_float(data.ctypes.data, back.ctypes.data, rows * row)
        ours = np.frombuffer(enc.ask((tid, row, rows, 0, 1), data, size=4 * row * rows), np.float32)
        decoded += rows * row
        unlike = (back.view(np.uint32) != ours.view(np.uint32)) & ~(np.isnan(back) & np.isnan(ours))
        if unlike.any():
            i = int(np.nonzero(unlike)[0][0])
            at = i // traits.block
            bad.append(("decode", i, float(back[i]), float(ours[i]), data[at * traits.size : (at + 1) * traits.size].tolist()))
    return done, decoded, bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", type=common.Path)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--seed", type=int, default=None, help="the default differs every time")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else int(time.time())
    lib, enc, failed = library(), Encoder(args.encoder.resolve()), False
    np.seterr(all="ignore")
    for name in args.types.split(","):
        done, decoded, bad = fuzz(lib, enc, name, args.seconds, np.random.default_rng([seed, TYPES[name][0]]))
        print(f"{name}: {done / 1e6:.1f} M values encoded, {decoded / 1e6:.1f} M decoded, {len(bad)} differences (seed {seed})", flush=True)
        for b in bad:
            print("  ", str(b)[:3000], flush=True)
        failed |= bool(bad)
    sys.exit(failed)


if __name__ == "__main__":
    main()
