"""A small GGUF reader of our own, so that a golden does not depend on the reader of the tool that made it.

summary(path) gives what a mismatch is diagnosed with: digest and size of the file, every key in file order, every tensor in file order.
Arrays appear as element type, count and the first 16 hex digits of the SHA-256 of their elements as they stand in the file (numbers
little-endian, a string as u64 length + bytes); tensor data likewise, without the padding behind it.
"""

import hashlib
import struct

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_KINDS = {0: "u8", 1: "i8", 2: "u16", 3: "i16", 4: "u32", 5: "i32", 6: "f32", 7: "bool", 8: "str", 9: "arr", 10: "u64", 11: "i64", 12: "f64"}

# type id: (name, values per block, bytes per block)
_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1),
    25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
    42: ("Q2_0", 64, 18),
}


class _Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if self.at + n > len(self.data):
            raise ValueError(f"file ends inside a field at offset {self.at}")
        piece = self.data[self.at : self.at + n]
        self.at += n
        return piece

    def scalar(self, fmt):
        return struct.unpack("<" + fmt, self.take(struct.calcsize(fmt)))[0]

    def text(self):
        return self.take(self.scalar("Q")).decode("utf-8", "surrogateescape")


def _short(data):
    return hashlib.sha256(data).hexdigest()[:16]


def _value(cur):
    kind = cur.scalar("i")
    if kind == 8:
        return "str", cur.text()
    if kind != 9:
        return _KINDS[kind], cur.scalar(_SCALARS[kind])
    element, count = cur.scalar("i"), cur.scalar("Q")
    start = cur.at
    if element == 8:
        for _ in range(count):
            cur.take(cur.scalar("Q"))
    else:
        cur.take(count * struct.calcsize(_SCALARS[element]))
    return "arr", {"of": _KINDS[element], "count": count, "sha256": _short(cur.data[start : cur.at])}


def summary(path):
    with open(path, "rb") as f:
        data = f.read()
    cur = _Cursor(data)
    if cur.take(4) != b"GGUF" or cur.scalar("I") != 3:
        raise ValueError(f"{path}: not a GGUF version 3 file")
    n_tensors, n_kv = cur.scalar("q"), cur.scalar("q")
    kv, alignment = [], 32
    for _ in range(n_kv):
        key = cur.text()
        kind, value = _value(cur)
        if key == "general.alignment":
            alignment = value
        kv.append([key, kind, value])
    infos = []
    for _ in range(n_tensors):
        name = cur.text()
        dims = [cur.scalar("q") for _ in range(cur.scalar("I"))]
        infos.append((name, dims, cur.scalar("i"), cur.scalar("Q")))
    start = (cur.at + alignment - 1) // alignment * alignment
    tensors = []
    for name, dims, kind, offset in infos:
        label, block, size = _TYPES[kind]
        count = 1
        for d in dims:
            count *= d
        at = start + offset
        length = count // block * size
        if at + length > len(data):
            raise ValueError(f"{path}: tensor {name} runs past the end of the file")
        tensors.append([name, label, dims, offset, _short(data[at : at + length])])
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "data_start": start, "kv": kv, "tensors": tensors}


def differences(want, got, limit=12):
    """Lines that say where two summaries part, most telling first; empty when the files are the same."""
    if want["sha256"] == got["sha256"]:
        return []
    lines = [f"size {got['size']}, want {want['size']}"] if want["size"] != got["size"] else []
    for part in ("kv", "tensors"):
        a, b = [x[0] for x in want[part]], [x[0] for x in got[part]]
        if a != b:
            missing, extra = [x for x in a if x not in set(b)], [x for x in b if x not in set(a)]
            lines.append(f"{part}: missing {missing[:6]}, extra {extra[:6]}" if missing or extra else f"{part}: other order")
            for i, (x, y) in enumerate(zip(a, b)):
                if x != y:
                    lines.append(f"{part}[{i}]: {y}, want {x}")
                    break
        found = {x[0]: x for x in got[part]}
        for entry in want[part]:
            other = found.get(entry[0])
            if other is not None and other != entry:
                lines.append(f"{part} {entry[0]}: {other[1:]}, want {entry[1:]}")
    return lines[:limit] or ["same fields, other bytes (padding or header layout)"]
