"""Makes testdata/pickle/: small pickles of NumPy arrays and files of torch.save, in every protocol and form that is read, and some that must not be.

    make_pickles.py ../testdata/pickle
"""

import collections
import io
import os
import pickle
import sys

import ml_dtypes
import numpy as np
import torch


def values():
    a = (np.arange(24, dtype=np.float32) / 8 - 1).reshape(2, 3, 4)
    return {
        "f4": a, "f2": a.astype(np.float16), "f8": a.astype(np.float64), "i4": np.arange(6, dtype=np.int32).reshape(2, 3), "u1": np.arange(5, dtype=np.uint8),
        "b1": np.array([True, False]), "scalar": np.float32(2.5), "zero": np.zeros((), np.float32), "empty": np.zeros((0, 3), np.float32),
        "fortran": np.asfortranarray(a[0]), "large": np.arange(300, dtype=np.float32),
        "nested": {"list": [1, 2.5, None, True, False, "text é"], "tuple": (1, (2, 3), ()), "long": -2**62, "int": 70000, "neg": -5},
        "ordered": collections.OrderedDict(x=np.ones(2, np.float32)),
    }


def main(out):
    os.makedirs(out, exist_ok=True)

    def write(name, data):
        with open(os.path.join(out, name), "wb") as f:
            f.write(data)

    for p in (2, 3, 4, 5):
        write(f"protocol{p}.pkl", pickle.dumps(values(), protocol=p))
    write("bfloat16.pkl", pickle.dumps({"bf": np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)}, protocol=4))
    write("big-endian.pkl", pickle.dumps({"x": np.arange(3, dtype=">f4")}, protocol=4))
    write("objects.pkl", pickle.dumps({"x": np.array([1, "a"], dtype=object)}, protocol=4))
    write("function.pkl", pickle.dumps({"x": os.system}, protocol=4))
    write("call.pkl", b"\x80\x02cos\nsystem\nq\x00X\x04\x00\x00\x00trueq\x01\x85q\x02Rq\x03.")

    t = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) / 8 - 1
    buf = io.BytesIO()
    torch.save(collections.OrderedDict(a=t, half=t.half(), bf=t.bfloat16(), part=t[1], param=torch.nn.Parameter(t[0].clone()), long=torch.arange(3)), buf)
    write("torch.pt", buf.getvalue())
    buf = io.BytesIO()
    torch.save({"x": t[0].t()}, buf)
    write("torch-strided.pt", buf.getvalue())


if __name__ == "__main__":
    main(sys.argv[1])
