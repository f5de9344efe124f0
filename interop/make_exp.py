"""Writes testdata/convert/exp.json: pairs of float32 bits, x and torch.exp(x), on a processor that is not Intel's.

Half of the values are such that torch's result is not the nearest float32.
"""

import json

import numpy as np
import torch

import common


def main():
    x = np.random.default_rng(35).uniform(-12, 6, 200_000).astype("f4")
    y = torch.exp(torch.from_numpy(x)).numpy()
    far = y != np.exp(x.astype("f8")).astype("f4")
    pick = np.concatenate([np.flatnonzero(far)[:200], np.flatnonzero(~far)[:200], [0]])
    edges = np.array([0.0, -0.0, 1.0, -1.0, 2.772589, 86.5, -86.5, 1e-8, -1e-30], "f4")
    x = np.concatenate([x[pick], edges])
    y = torch.exp(torch.from_numpy(x)).numpy()
    pairs = [[int(a), int(b)] for a, b in zip(x.view("u4"), y.view("u4"))]
    (common.GOLDENS / "exp.json").write_text(json.dumps(pairs, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
