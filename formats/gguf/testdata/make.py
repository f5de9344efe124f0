"""Makes the .gguf files of this folder with gguf-py, the writer of convert_hf_to_gguf.py (llama.cpp v0.5.0, gguf-py of the same tree).

    PYTHONPATH=LLAMA_CPP/gguf-py python make.py
"""

from pathlib import Path

import gguf
import numpy as np
from gguf import GGUFValueType as V

HERE = Path(__file__).parent


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def kinds():
    """Every value type, a key given twice, an alignment of 64, shapes with ones and without dimensions."""
    w = gguf.GGUFWriter(HERE / "kinds.gguf", "quern-test")
    w.add_custom_alignment(64)
    w.add_uint32("twice", 1)
    w.add_uint8("u8", 255)
    w.add_int8("i8", -128)
    w.add_uint16("u16", 65535)
    w.add_int16("i16", -32768)
    w.add_uint32("u32", 2**32 - 1)
    w.add_int32("i32", -(2**31))
    w.add_uint64("u64", 2**64 - 1)
    w.add_int64("i64", -(2**63))
    w.add_float32("f32", 0.1)
    w.add_float64("f64", 0.1)
    w.add_bool("yes", True)
    w.add_bool("no", False)
    w.add_string("str", "grüße, 挽き臼")
    w.add_string("twice", "now a string")
    w.add_array("strs", ["a", "", "ccc"])
    w.add_array("i32s", [1, -2, 3])
    w.add_array("f32s", [0.5, -1000.0])
    w.add_array("bools", [True, False, True])
    for name, kind, val in [("u8s", V.UINT8, [1, 2]), ("i8s", V.INT8, [-1]), ("u16s", V.UINT16, [65535]), ("i16s", V.INT16, [-2]),
                            ("u32s", V.UINT32, [7]), ("u64s", V.UINT64, [2**63]), ("i64s", V.INT64, [-(2**40)]), ("f64s", V.FLOAT64, [0.1])]:
        w.add_key_value(name, val, V.ARRAY, sub_type=kind)
    data = np.arange(64, dtype=np.float32)
    w.add_tensor("matrix", data[:12].reshape(3, 4))
    w.add_tensor("ones", data[:5].reshape(1, 1, 5))
    w.add_tensor("scalar", np.array(2.5, dtype=np.float32))
    w.add_tensor("four", data[:24].reshape(2, 3, 1, 4).astype(np.float16))
    w.add_tensor("blocks", np.arange(68, dtype=np.uint8).reshape(2, 34), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    w.add_tensor("ids", np.arange(3, dtype=np.int32))
    finish(w)


def split(stem, **limits):
    """Five tensors of 32, 64, 96, 64 and 32 bytes cut into shards."""
    w = gguf.GGUFWriter(HERE / (stem + ".gguf"), "quern-test", **limits)
    w.add_string("general.name", "split")
    for i, n in enumerate([8, 16, 24, 16, 8]):
        w.add_tensor(f"t{i}", np.full(n, i, dtype=np.float32))
    finish(w)


kinds()
split("by-count", split_max_tensors=2)
split("by-size", split_max_size=130)
split("bare-first", split_max_size=96, small_first_shard=True)
