"""Makes the tiny models' folders out of their descriptions (testdata/convert/models/NAME), byte for byte the same everywhere.

    weights.py NAME... [--to FOLDER]        (no name: all of them)

The recipe is written out in README.md; a Go test helper follows the same one. numpy is used only for exact integer and rounding work.
"""

import argparse
import gzip
import json
import shutil
from pathlib import Path

import numpy as np

import common

DESCRIPTIONS = common.GOLDENS / "models"


def fnv1a64(name):
    h = 0xCBF29CE484222325
    for byte in name.encode("utf-8"):
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


GAMMA = 0x9E3779B97F4A7C15  # how far splitmix64's seed moves with each number


def draws(seed, count):
    """count numbers of 64 bits from splitmix64."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def values(name, count):
    """float32 values in [-1/8, 1/8): 24 random bits each, from splitmix64 seeded with FNV-1a 64 of the tensor's name."""
    z = draws(fnv1a64(name), count)
    top = (z >> np.uint64(40)).astype(np.int64) - (1 << 23)
    return top.astype(np.float32) * np.float32(2.0**-26)


def encode(x, dtype):
    if dtype == "F32":
        return x.astype("<f4").tobytes()
    if dtype == "F16":
        return x.astype("<f2").tobytes()
    if dtype == "BF16":
        bits = x.view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
    if dtype == "F8_E4M3":
        low = (x * np.float32(2.0**26)).astype(np.int64) & 0xFF
        return np.where(low & 0x7F == 0x7F, low - 1, low).astype(np.uint8).tobytes()
    raise ValueError(f"unknown dtype {dtype}")


def safetensors(path, tensors):
    """Writes tensors, (name, dtype, shape) each, sorted by name, data in the same order without gaps."""
    header, body, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, dtype, shape in sorted(tensors, key=lambda t: t[0]):
        data = encode(values(name, int(np.prod(shape, dtype=np.int64))), dtype)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        body.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(body))
    return at


def build(name, parent):
    """Makes the model's folder below parent, unless it stands there already, and returns it."""
    described = DESCRIPTIONS / name
    desc = json.loads((described / "model.json").read_text())
    out = parent / name
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    for f in described.iterdir():
        if f.name != "model.json":
            shutil.copyfile(f, out / f.name)
    for target, source in desc["copy"].items():
        data = (common.GOLDENS / source).read_bytes()
        (out / target).write_bytes(gzip.decompress(data) if source.endswith(".gz") else data)
    weight_map, total = {}, 0
    for shard in desc["shards"]:
        total += safetensors(out / shard["file"], shard["tensors"])
        weight_map.update({t[0]: shard["file"] for t in shard["tensors"]})
    if desc["index"]:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--to", type=Path, default=common.cache() / "models")
    args = parser.parse_args()
    for name in args.names or sorted(d.name for d in DESCRIPTIONS.iterdir()):
        out = build(name, args.to)
        print(out, sum(f.stat().st_size for f in out.iterdir()))


if __name__ == "__main__":
    main()
