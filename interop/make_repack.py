"""Makes testdata/repack/ggml.json: what ggml's repacked layouts of given blocks are.

    python make_repack.py

The blocks are splitmix64 bytes, so a golden is a digest, and the first bundle
in full to look at. Every layout comes from ggml's repack.cpp (repack_peer.cpp);
those that the prebuilt library picks on this processor also come out of its
CPU_REPACK buffers, and both must agree.
"""
import ctypes
import hashlib
import json
import subprocess

import numpy as np

from common import TESTDATA, cache

LIBRARIES = cache() / "npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
# layout -> rows of a group, ggml type, values and bytes of a block
LAYOUTS = {}
for _names, _type, _values, _bytes in [
        ("q4_0_4x4 q4_0_4x8 q4_0_8x8", 2, 32, 18), ("q4_K_8x4 q4_K_8x8", 12, 256, 144), ("q5_K_8x4 q5_K_8x8", 13, 256, 176),
        ("q6_K_8x4 q6_K_8x8", 14, 256, 210), ("q2_K_8x8", 10, 256, 84), ("iq4_nl_4x4 iq4_nl_8x8", 20, 32, 18),
        ("mxfp4_4x4 mxfp4_8x8", 39, 32, 17), ("q8_0_4x4 q8_0_4x8", 8, 32, 34), ("q1_0_4x4 q1_0_4x8", 41, 128, 18)]:
    for _name in _names.split():
        LAYOUTS[_name] = (int(_name.split("_")[-1].split("x")[0]), _type, _values, _bytes)
ROW_LENGTHS = {32: [32, 96, 288, 576, 2880], 128: [128, 640, 2688], 256: [256, 768, 2816]}
ROWS = [32, 96, 288, 576, 2880]


def noise(name, size):
    """splitmix64 of the seed that weights.py gives a tensor of this name, as bytes."""
    h = 0xcbf29ce484222325
    for c in name.encode():
        h = (h ^ c) * 0x100000001b3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(1, (size + 7) // 8 + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
        return (z ^ z >> np.uint64(31)).astype("<u8").tobytes()[:size]


def build():
    root, out = cache() / "llama.cpp/ggml", cache() / "build/bin/repack_peer"
    libs = cache() / "build/ggml/src"
    subprocess.run(["c++", "-O1", "-std=c++17", "-w", "-fopenmp", "repack_peer.cpp", "-o", out, "-I", root / "include", "-I", root / "src",
                    "-I", root / "src/ggml-cpu", "-Wl,--allow-multiple-definition", libs / "libggml.a", libs / "libggml-cpu.a",
                    libs / "libggml-base.a", "-lpthread", "-ldl", "-lm"], check=True)
    return out


class Buffers:
    """CPU_REPACK buffers of the prebuilt library."""

    def __init__(self):
        base = ctypes.CDLL(str(LIBRARIES / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
        cpu = ctypes.CDLL(str(LIBRARIES / "libggml-cpu-haswell.so"))
        P, S, I64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
        for lib, name, result, args in [
                (cpu, "ggml_backend_cpu_reg", P, []), (base, "ggml_backend_reg_dev_get", P, [P, S]),
                (base, "ggml_backend_reg_get_proc_address", P, [P, ctypes.c_char_p]), (base, "ggml_backend_buft_name", ctypes.c_char_p, [P]),
                (base, "ggml_backend_buft_alloc_buffer", P, [P, S]), (base, "ggml_backend_buffer_get_base", P, [P]),
                (base, "ggml_new_tensor_3d", P, [P, ctypes.c_int, I64, I64, I64]), (base, "ggml_get_data", P, [P]),
                (base, "ggml_backend_tensor_alloc", ctypes.c_int, [P, P, P]), (base, "ggml_backend_buffer_free", None, [P]),
                (base, "ggml_backend_tensor_set", None, [P, ctypes.c_char_p, S, S]), (base, "ggml_free", None, [P])]:
            f = getattr(lib, name)
            f.restype, f.argtypes = result, args
            setattr(self, name, f)

        class Params(ctypes.Structure):
            _fields_ = [("size", S), ("buffer", P), ("no_alloc", ctypes.c_bool)]
        base.ggml_init.restype, base.ggml_init.argtypes = P, [Params]
        self.context = lambda: base.ggml_init(Params(1 << 16, None, True))
        reg = self.ggml_backend_cpu_reg()
        extra = ctypes.CFUNCTYPE(ctypes.POINTER(P), P)(self.ggml_backend_reg_get_proc_address(reg, b"ggml_backend_dev_get_extra_bufts"))
        bufts, i, self.buft = extra(self.ggml_backend_reg_dev_get(reg, 0)), 0, None
        while bufts[i]:
            if self.ggml_backend_buft_name(bufts[i]) == b"CPU_REPACK":
                self.buft = bufts[i]
            i += 1
        assert self.buft, "the library has no CPU_REPACK buffers"

    def repack(self, kind, shape, data):
        ctx = self.context()
        t = self.ggml_new_tensor_3d(ctx, kind, *shape)
        buffer = self.ggml_backend_buft_alloc_buffer(self.buft, len(data))
        self.ggml_backend_tensor_alloc(buffer, t, self.ggml_backend_buffer_get_base(buffer))
        self.ggml_backend_tensor_set(t, data, 0, len(data))
        out = ctypes.string_at(self.ggml_get_data(t), len(data))
        self.ggml_backend_buffer_free(buffer)
        self.ggml_free(ctx)
        return out


def main():
    peer, buffers = build(), Buffers()
    by_library = ["q4_0_8x8", "q4_K_8x8", "iq4_nl_8x8", "mxfp4_8x8"]  # what AVX2 makes ggml pick
    cases = []
    for name, (group, kind, values, size) in LAYOUTS.items():
        shapes = [(n, group * 2, 1) for n in ROW_LENGTHS[values]] + [(values, rows, 1) for rows in ROWS] + [(values * 2, group * 2, 3)]
        for row_len, rows, experts in shapes:
            case = f"{name} {row_len} {rows} {experts}"
            data = noise(case, row_len // values * size * rows * experts)
            run = subprocess.run([peer, name, str(row_len), str(rows), str(experts)], input=data, capture_output=True, check=True)
            assert len(run.stdout) == len(data)
            if name in by_library:
                assert buffers.repack(kind, (row_len, rows, experts), data) == run.stdout, case
            case = {"layout": name, "row": row_len, "rows": rows, "experts": experts, "sha256": hashlib.sha256(run.stdout).hexdigest()}
            if not cases or cases[-1]["layout"] != name:
                case["bundle"] = run.stdout[:group * size].hex()
            cases.append(case)
        # groups of rows that do not fill
        data = noise("x", size * (group + 1))
        run = subprocess.run([peer, name, str(values), str(group + 1), "1"], input=data, capture_output=True)
        assert run.returncode == 3, (name, run)
    (TESTDATA / "repack").mkdir(exist_ok=True)
    text = "[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n"
    (TESTDATA / "repack/ggml.json").write_text(text)
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
