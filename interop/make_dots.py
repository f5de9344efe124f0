"""Makes testdata/ggml/dots.json: what ggml's own kernels give for products of the block goldens.

    python make_dots.py

For each type of testdata/ggml the first rows of its file are multiplied with
other rows of the input, which ggml quantizes for the type as it does in a
matrix product (libggml-cpu-haswell: AVX2 and FMA).
"""
import ctypes
import json

import numpy as np

from common import TESTDATA, cache

LIBRARIES = cache() / "npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
ROWS, ACTIVATIONS = 4, 3


class TraitsCPU(ctypes.Structure):
    _fields_ = [("from_float", ctypes.c_void_p), ("vec_dot", ctypes.c_void_p), ("vec_dot_type", ctypes.c_int), ("nrows", ctypes.c_int64)]


def main():
    base = ctypes.CDLL(str(LIBRARIES / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
    cpu = ctypes.CDLL(str(LIBRARIES / "libggml-cpu-haswell.so"))
    cpu.ggml_cpu_init()
    cpu.ggml_get_type_traits_cpu.restype = ctypes.POINTER(TraitsCPU)
    base.ggml_row_size.restype = ctypes.c_size_t
    base.ggml_row_size.argtypes = [ctypes.c_int, ctypes.c_int64]
    base.ggml_type_name.restype = ctypes.c_char_p
    from_float = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    vec_dot = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
                               ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    index = json.loads((TESTDATA / "ggml/index.json").read_text())
    cols = index["cols"]
    x = np.fromfile(TESTDATA / "ggml/input.f32", np.float32).reshape(-1, cols)[-ACTIVATIONS:]
    out = {"rows": ROWS, "activations": ACTIVATIONS, "packed": {}, "dots": {}}
    for name, row in index["types"].items():
        if row["block"] == 1:
            continue
        traits = cpu.ggml_get_type_traits_cpu(row["id"]).contents
        kind = traits.vec_dot_type
        quantize = from_float(cpu.ggml_get_type_traits_cpu(kind).contents.from_float)
        size = base.ggml_row_size(kind, cols)
        packed = []
        for a in x:
            b = ctypes.create_string_buffer(size)
            quantize(a.ctypes.data, b, cols)
            packed.append(b)
        kind_name = base.ggml_type_name(kind).decode()
        out["packed"].setdefault(kind_name, [b.raw.hex() for b in packed])
        w = np.fromfile(TESTDATA / f"ggml/{name}.bin", np.uint8)
        row_bytes = cols // row["block"] * row["bytes"]
        dots = []
        for r in range(ROWS):
            src = np.ascontiguousarray(w[r * row_bytes:(r + 1) * row_bytes])
            for b in packed:
                s = ctypes.c_float()
                vec_dot(traits.vec_dot)(cols, ctypes.byref(s), 0, src.ctypes.data, 0, b, 0, 1)
                dots.append(s.value)
        out["dots"][name] = {"activations": kind_name, "sums": dots}
    text = json.dumps(out, indent=1)
    (TESTDATA / "ggml/dots.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
