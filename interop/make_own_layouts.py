"""Makes testdata/repack/own.json: quern's own repacked layouts of given blocks, by the drawings in docs/repack.md.

    python make_own_layouts.py

No other program has these layouts, so this is a second reading of the drawings:
every number of a bundle is looked up by its place, one at a time, in Python
integers. Blocks are those of make_repack.py, with code 3 of Q2_0 made 1 where a
layout is ternary, and the scale of each second block that of the first where it
has one for two.
"""
import hashlib
import json

from common import TESTDATA
from make_repack import noise

# layout -> rows of a group, values and bytes of a block, blocks in a bundle
LAYOUTS = {
    "q2_K_8x4": (8, 256, 84, 1), "q2_K_32_lut": (32, 256, 84, 1), "q1_0_8x4_planes": (8, 128, 18, 1), "q1_0_32_lut": (32, 128, 18, 1),
    "q2_0_8x4": (8, 64, 18, 1), "q2_0_8x4_base3": (8, 64, 18, 1), "q2_0_8x4_merged128": (8, 64, 18, 2),
    "tq1_0_8x4": (8, 256, 54, 1), "tq2_0_8x4": (8, 256, 66, 1)}
ROWS = [32, 96, 288, 576, 2880]


def q2k(b, v):
    """Code v of a q2_K block."""
    return b[16 + v // 128 * 32 + v % 32] >> (v % 128 // 32 * 2) & 3


def q2(b, v):
    return b[2 + v // 4] >> (v % 4 * 2) & 3


def q1(b, v):
    return b[2 + v // 8] >> (v % 8) & 1


def turns(rows, at, size, chunk):
    return bytes(b[at + c + k] for c in range(0, size, chunk) for b in rows for k in range(chunk))


def bits(numbers):
    """A byte of (number, shift) pairs."""
    return sum(n << s for n, s in numbers)


def q2_K_8x4(rows):
    return turns(rows, 80, 2, 2) + turns(rows, 82, 2, 2) + turns(rows, 0, 16, 1) + turns(rows, 16, 64, 4)


def q2_K_32_lut(rows):
    out = turns(rows, 80, 2, 2) + turns(rows, 82, 2, 2) + turns(rows, 0, 16, 1)
    for t in range(64):
        for plane in range(2):
            for i in range(16):
                out += bytes([bits((q2k(rows[i + 16 * h], 4 * t + j) >> plane & 1, 4 * h + j) for h in range(2) for j in range(4))])
    return out


def q1_0_8x4_planes(rows):
    return turns(rows, 0, 2, 2) + bytes(bits((q1(b, 32 * u + 4 * k + j), k) for k in range(8)) for u in range(4) for b in rows for j in range(4))


def q1_0_32_lut(rows):
    return turns(rows, 0, 2, 2) + bytes(bits((q1(rows[i + 16 * h], 4 * t + j), 4 * h + j) for h in range(2) for j in range(4))
                                        for t in range(32) for i in range(16))


def q2_0_8x4(rows):
    return turns(rows, 0, 2, 2) + bytes(bits((q2(b, 16 * c + 4 * k + j), 2 * k) for k in range(4)) for c in range(4) for b in rows for j in range(4))


def trits(codes):
    q = 0
    for c in codes:
        q = 3 * q + c
    return -(-q * 256 // 243)


def q2_0_8x4_base3(rows):
    out = turns(rows, 0, 2, 2)
    out += bytes(trits(q2(b, 20 * k + 4 * n + j) for n in range(5)) for k in range(3) for b in rows for j in range(4))
    return out + bytes(trits([q2(rows[2 * n + w], 60 + j) for n in range(4)] + [0]) for w in range(2) for j in range(4))


def q2_0_8x4_merged128(rows):
    out = turns(rows, 0, 2, 2)
    for c in range(8):
        half, at = c // 4 * 18, c % 4 * 16
        out += bytes(bits((q2(b[half:], at + 4 * k + j), 2 * k) for k in range(4)) for b in rows for j in range(4))
    return out


def tq1_0_8x4(rows):
    return turns(rows, 52, 2, 2) + turns(rows, 0, 48, 4) + turns(rows, 48, 4, 4)


def tq2_0_8x4(rows):
    return turns(rows, 64, 2, 2) + turns(rows, 0, 64, 4)


def blocks_for(name, case, size):
    b = bytearray(noise(case, size))
    if name in ("q2_0_8x4_base3", "q2_0_8x4_merged128"):
        for at in range(0, size, 18):
            for v in range(64):
                if q2(b[at:], v) == 3:
                    b[at + 2 + v // 4] &= ~(2 << v % 4 * 2)
            if name.endswith("merged128") and at // 18 % 2:
                b[at:at + 2] = b[at - 18:at - 16]
    return bytes(b)


def main():
    cases = []
    for name, (group, values, size, blocks) in LAYOUTS.items():
        pack, step = globals()[name], blocks * values
        shapes = [(n * step, group * 2, 1) for n in (1, 2, 3, 5)] + [(step, rows, 1) for rows in ROWS] + [(step * 2, group * 2, 3)]
        for row_len, rows, experts in shapes:
            case = f"{name} {row_len} {rows} {experts}"
            row = row_len // values * size
            data = blocks_for(name, case, row * rows * experts)
            out, first = b"", b""
            for g in range(rows * experts // group):
                for x in range(row_len // step):
                    at = [(g * group + r) * row + x * blocks * size for r in range(group)]
                    out += pack([data[a:a + blocks * size] for a in at])
                    first = first or out
            c = {"layout": name, "row": row_len, "rows": rows, "experts": experts, "sha256": hashlib.sha256(out).hexdigest()}
            if not cases or cases[-1]["layout"] != name:
                c["bundle"] = first.hex()
            cases.append(c)
    text = "[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n"
    (TESTDATA / "repack/own.json").write_text(text)
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
