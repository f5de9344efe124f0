"""Makes testdata/cq/: what NumPy makes of a few matrices by the description of CQ.

    python make_cq.py ../testdata/cq

The matrix products are NumPy's own, not fast transforms, and the numbers come
from NumPy's RandomState: a second implementation of package tensor/cq.
"""
import json
import os
import sys

import numpy as np

TERNARY = 1.2240064


def fit(samples, levels, rounds=200):
    x = np.sort(samples)
    c = x[((np.arange(levels) + 0.5) / levels * len(x)).astype(int)].astype(np.float64)
    for _ in range(rounds):
        cell = np.searchsorted((c[:-1] + c[1:]) / 2.0, x)
        for k in range(levels):
            if (cell == k).any():
                c[k] = x[cell == k].mean()
    return np.sort(c)


def hadamard(n):
    h = np.ones((1, 1), np.float32)
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return (h / np.sqrt(n)).astype(np.float32)


def encode(w, book, group):
    pad = -w.shape[1] % group
    g = np.pad(w, ((0, 0), (0, pad))).reshape(len(w), -1, group)
    rot = g @ hadamard(group)
    norm = np.sqrt((rot ** 2).sum(-1, keepdims=True))
    unit = rot / np.maximum(norm, 1e-12)
    at = np.clip(np.searchsorted(book, unit.ravel()), 1, len(book) - 1).reshape(unit.shape)
    lower = np.abs(unit - book[at - 1]) <= np.abs(unit - book[at])
    index = np.where(lower, at - 1, at).astype(np.uint8)
    return index.reshape(len(w), -1), norm[..., 0].astype(np.float16)


def hexes(a):
    return np.ascontiguousarray(a).tobytes().hex()


def main(out):
    os.makedirs(out, exist_ok=True)
    draws = np.random.RandomState(0).randn(400000)
    levels = {"2": fit(draws, 4), "3": fit(draws, 8), "4": fit(draws, 16),
              "1.58": np.array([-TERNARY, 0, TERNARY]),
              "1": np.array([-np.sqrt(2 / np.pi), np.sqrt(2 / np.pi)])}
    doc = {"numpy": np.__version__, "randn": {}, "permutation": {}, "fit": [], "encode": []}
    for seed in (0, 11, 4294967295):
        doc["randn"][str(seed)] = hexes(np.random.RandomState(seed).randn(9))
    for seed, n in ((11, 256), (13, 256), (988, 128), (11, 100), (0, 1)):
        doc["permutation"][f"{seed}/{n}"] = np.random.RandomState(seed).permutation(n).tolist()
    laplace = np.random.RandomState(7).laplace(size=3000)
    few = np.repeat([1.0, 2.0, 5.0], [3, 4, 2])
    for name, x, n, rounds in (("laplace", laplace, 5, 40), ("few values", few, 4, 10), ("one level", laplace, 1, 3)):
        doc["fit"].append({"name": name, "samples": hexes(x), "levels": n, "rounds": rounds, "want": hexes(fit(x, n, rounds))})
    rng = np.random.RandomState(5)
    for group in (32, 64, 128, 256):
        w = (rng.standard_t(4, (3, 300)) * 0.02).astype(np.float32)
        w[2, :group] = 0
        for bits, c in levels.items():
            book = (c / np.sqrt(group)).astype(np.float32)
            index, norms = encode(w, book, group)
            doc["encode"].append({"bits": bits, "group": group, "rows": 3, "weights": hexes(w), "book": hexes(book),
                                  "index": hexes(index), "norms": hexes(norms)})
    with open(os.path.join(out, "numpy.json"), "w") as f:
        json.dump(doc, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
