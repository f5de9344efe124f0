"""Makes testdata/ggmldot: digests of matrix products that ggml's CPU backend computes, for tests that compute the same.

    python make_ggmldot.py [TYPE ...]      all types, or some anew
    python make_ggmldot.py --check         the prebuilt library beside the one that setup.sh builds, nothing is written
    python make_ggmldot.py --bench         speed of one thread, beside go test -bench Mul ./tensor/ggmldot

Weights and activations are not kept: both sides make them from a seed by the rules below (package tensor/ggmldot, cases_test.go, has
them in Go). Each type has a file of its own, a case a line.
"""
import hashlib
import json
import struct
import subprocess
import sys

import numpy as np

from common import HERE, TESTDATA, cache, run
from weights import draws

LIBRARIES = cache() / "npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
OUT = TESTDATA / "ggmldot"

# ggml's number, values and bytes of a block, offsets of F16 scales, offset of an E8M0 scale
TYPES = {
    "F32": (0, 1, 4, [], None),
    "F16": (1, 1, 2, [], None),
    "BF16": (30, 1, 2, [], None),
    "Q4_0": (2, 32, 18, [0], None),
    "Q4_1": (3, 32, 20, [0, 2], None),
    "Q5_0": (6, 32, 22, [0], None),
    "Q5_1": (7, 32, 24, [0, 2], None),
    "Q8_0": (8, 32, 34, [0], None),
    "IQ4_NL": (20, 32, 18, [0], None),
    "MXFP4": (39, 32, 17, [], 0),
    "Q1_0": (41, 128, 18, [0], None),
    "Q2_0": (42, 64, 18, [0], None),
    "NVFP4": (40, 64, 36, [], None),
    "Q2_K": (10, 256, 84, [80, 82], None),
    "Q3_K": (11, 256, 110, [108], None),
    "Q4_K": (12, 256, 144, [0, 2], None),
    "Q5_K": (13, 256, 176, [0, 2], None),
    "Q6_K": (14, 256, 210, [208], None),
    "TQ1_0": (34, 256, 54, [52], None),
    "TQ2_0": (35, 256, 66, [64], None),
    "IQ1_S": (19, 256, 50, [0], None),
    "IQ1_M": (29, 256, 56, [], None),
    "IQ2_XXS": (16, 256, 66, [0], None),
    "IQ2_XS": (17, 256, 74, [0], None),
    "IQ2_S": (22, 256, 82, [0], None),
    "IQ3_XXS": (18, 256, 98, [0], None),
    "IQ3_S": (21, 256, 110, [0], None),
    "IQ4_XS": (23, 256, 136, [0], None),
}
REPACKED = ["Q4_0", "IQ4_NL", "MXFP4", "Q4_K"]


def weights(name, seed, width, rows, profile):
    """Random blocks with scales of sensible size, or of any bytes."""
    number, block, size, scales, e8m0 = TYPES[name]
    if profile == "hostile":
        n = rows * width // block * size
        return draws(seed, (n + 7) // 8).tobytes()[:n]
    if block == 1:
        bits = floats(seed, 1, rows * width, "plain").view(np.uint32)
        if name == "F32":
            return bits.tobytes()
        if name == "BF16":
            return (bits >> np.uint32(16)).astype(np.uint16).tobytes()
        return bits.view(np.float32).astype(np.float16).tobytes()
    blocks = rows * width // block
    raw = draws(seed, (blocks * size + 7) // 8).tobytes()[:blocks * size]
    b = np.frombuffer(raw, np.uint8).reshape(blocks, size).copy()
    for at in scales:
        h = b[:, at].astype(np.uint16) | b[:, at + 1].astype(np.uint16) << np.uint16(8)
        # exponents 2^-10 to 2^-3, any sign and mantissa
        h = (h & np.uint16(0x83FF)) | ((np.uint16(5) + (h >> np.uint16(10)) % np.uint16(8)) << np.uint16(10))
        b[:, at], b[:, at + 1] = h & np.uint16(255), h >> np.uint16(8)
    if e8m0 is not None:
        b[:, e8m0] = 116 + b[:, e8m0] % 12
    if name == "IQ1_M":
        # The highest bits of its scale, which lie in the upper half of the last byte, 1 or 2.
        b[:, 55] = (b[:, 55] & np.uint8(0x8F)) | ((np.uint8(1) + (b[:, 55] >> np.uint8(6)) % np.uint8(2)) << np.uint8(4))
    return b.tobytes()


def floats(seed, rows, width, profile):
    """Rows of float32 numbers. A block of 32 values, or what is left of one at the end of a row, has a character of its own."""
    r = draws(seed, rows * width).reshape(rows, width)
    blocks = (width + 31) // 32
    b = np.repeat(draws(seed ^ 0x5DEECE66D, rows * blocks).reshape(rows, blocks), 32, axis=1)[:, :width]
    u = np.uint64
    at = np.broadcast_to((np.arange(width) % 32).astype(np.uint64), r.shape)
    exponent = u(118) + (r >> u(40)) % u(10)
    zero = np.zeros(r.shape, bool)
    if profile != "plain":
        mode = b % u(8)
        zero = mode == 0
        exponent = np.where((mode == 1) & (at == (b >> u(8)) % u(32)), exponent + u(10), exponent)
        exponent = np.where(mode == 2, exponent - u(100), exponent)
        exponent = np.where(mode == 3, (r >> u(40)) % u(3), exponent)
        exponent = np.where(mode == 4, exponent + u(20), exponent)
    bits = (r & u(0x807FFFFF)) | (exponent << u(23))
    bits = np.where(zero, u(0), bits)
    if profile in ("special", "hostile"):
        odd = np.array([0x7FC00000, 0x7F800000, 0xFF800000, 0xFFC00000], np.uint64)[(b >> u(32)) % u(4)]
        bits = np.where((at == (b >> u(16)) % u(32)) & ((b >> u(24)) % u(4) == 0), odd, bits)
    return bits.astype(np.uint32).view(np.float32)


class Peer:
    """The program of ggmldot_peer.cpp."""

    def __init__(self, *args):
        self.process = subprocess.Popen([str(a) for a in args], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def product(self, case, threads=1, repeats=1):
        """The results as bits, one kind of NaN, columns by rows, and seconds; None if the backend has no such product."""
        number = TYPES[case["type"]][0]
        width, rows, columns = case["width"], case["rows"], case["columns"]
        request = struct.pack("<7i", number, width, rows, columns, case["repacked"], threads, repeats)
        request += weights(case["type"], case["seed"], width, rows, case["profile"])
        request += floats(case["seed"] + 1, columns, width, case["profile"]).tobytes()
        self.process.stdin.write(request)
        self.process.stdin.flush()
        status, seconds = struct.unpack("<id", self.process.stdout.read(12))
        if status:
            return None
        bits = np.frombuffer(self.process.stdout.read(4 * rows * columns), np.uint32).copy()
        bits[(bits & 0x7FFFFFFF) > 0x7F800000] = 0x7FC00000
        return bits, seconds


def build(name, *libraries):
    out = cache() / "build/bin" / name
    out.parent.mkdir(parents=True, exist_ok=True)
    run(["c++", "-O1", "-std=c++17", HERE / "ggmldot_peer.cpp", "-o", out, "-I", sources_include(), *libraries, "-lpthread", "-ldl"])
    return out


def sources_include():
    return cache() / "llama.cpp/ggml/include"


def peers():
    built = cache() / "build/ggml/src"
    ours = build("ggmldot_peer", *(built / f"libggml{part}.a" for part in ["", "-cpu", "-base"]))
    theirs = build("ggmldot_peer_prebuilt", LIBRARIES / "libggml.v0.5.0.so", LIBRARIES / "libggml-base.so", f"-Wl,-rpath,{LIBRARIES}")
    return Peer(ours), Peer(theirs, LIBRARIES / "libggml-cpu-haswell.so")


def shapes(name):
    """Width, rows, columns, profile."""
    block = TYPES[name][1]
    middle = {128: 640, 256: 768}.get(block, 576)
    if block == 1:
        for width in [1, 3, 5, 8, 31, 33, 40, 64, 100, 576]:
            for rows, columns in [(4, 1), (8, 2), (7, 3), (16, 5)]:
                yield width, rows, columns, "plain"
        for columns in range(1, 10):
            yield 136, 12, columns, "mixed"
        yield 64, 8, 6, "special"
        yield 2056, 16, 4, "plain"
    else:
        for columns in range(1, 10):
            yield block, 8, columns, "mixed"
            yield 3 * block, 16, columns, "special"
            yield middle, 16, columns, "plain"
        for rows in range(1, 8):
            yield 2 * block, rows, rows, "plain"
        yield 65 * block if block < 256 else 9 * block, 24, 6, "mixed"
        yield 66 * block if block < 256 else 10 * block, 9, 5, "mixed"
        if block == 256:
            yield block, 21, 11, "mixed"
            yield 9 * block, 8, 12, "mixed"
            yield block, 8, 131, "special"
    for columns in [64, 512]:
        yield 512 if block == 256 else middle, 8, columns, "mixed"


def cases(name):
    seed = TYPES[name][0] * 1_000_000
    for repacked in [0, 1] if name in REPACKED else [0]:
        for width, rows, columns, profile in shapes(name):
            if repacked and rows % 8:
                continue
            seed += 10
            yield {"type": name, "width": width, "rows": rows, "columns": columns, "repacked": repacked, "profile": profile, "seed": seed}
    # Any bytes, scales that are not finite included.
    for repacked in [0, 1] if name in REPACKED else [0]:
        for width, rows, columns in [(1, 8, 3), (4, 16, 4), (7, 8, 6), (6, 12, 1)] + ([(2, 8, 13)] if TYPES[name][1] == 256 else []):
            if repacked and rows % 8:
                continue
            seed += 10
            width *= max(TYPES[name][1], 10)
            yield {"type": name, "width": width, "rows": rows, "columns": columns, "repacked": repacked, "profile": "hostile", "seed": seed}


def bench(peer, names):
    """Products of the shape of SmolLM2's, wider where blocks ask for it, with a token and with a prompt."""
    for name in names:
        rows, width = 1536, next(w for w in range(576, 1024, 64) if w % TYPES[name][1] == 0)
        for repacked in [0, 1] if name in REPACKED else [0]:
            for columns, repeats in [(1, 100), (512, 8)]:
                case = {"type": name, "width": width, "rows": rows, "columns": columns, "repacked": repacked, "profile": "plain", "seed": 5}
                _, seconds = peer.product(case, repeats=repeats)
                print(f"{name}{'_repacked' * repacked}/{columns} {2e-9 * width * rows * columns / seconds:.1f} GFLOP/s", flush=True)


def repacks(peer):
    """Which matrices of up to 17 rows the CPU_REPACK buffer takes, by type."""
    out = {}
    for name, row in TYPES.items():
        case = {"type": name, "width": max(row[1], 32), "columns": 1, "repacked": 1, "profile": "plain", "seed": 1}
        out[name] = [rows for rows in range(1, 18) if peer.product({**case, "rows": rows})]
    return out


def main():
    args = sys.argv[1:]
    check = "--check" in args
    names = [a for a in args if not a.startswith("--")] or list(TYPES)
    ours, theirs = peers()
    if "--bench" in args:
        bench(ours, names)
        return
    OUT.mkdir(exist_ok=True)
    table = repacks(ours)
    if table != repacks(theirs):
        print("the two libraries repack other matrices")
    if not check:
        (OUT / "repacks.json").write_text(json.dumps(table) + "\n")
    for name in names:
        lines, different = [], 0
        for case in cases(name):
            a, b, two = ours.product(case), theirs.product(case), ours.product(case, threads=2)
            if a is None or b is None or two is None:
                sys.exit(f"no product: {case}")
            if not np.array_equal(a[0], b[0]) or not np.array_equal(a[0], two[0]):
                different += 1
                print("differs:", case, int((a[0] != b[0]).sum()), "of", a[0].size, "in the prebuilt library,", int((a[0] != two[0]).sum()), "with two threads")
            bits = a[0].astype("<u4")
            rows = case["rows"]
            case["sha256"] = hashlib.sha256(bits.tobytes()).hexdigest()
            # the first results of the first and of the last column
            case["first"], case["last"] = [[f"{v:08x}" for v in c[:4]] for c in (bits[:rows], bits[-rows:])]
            lines.append(json.dumps(case))
        print(f"{name}: {len(lines)} cases, {different} differ")
        if not check:
            (OUT / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
