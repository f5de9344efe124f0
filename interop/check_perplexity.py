"""Holds quern's perplexity in --act q8 against llama-perplexity's, and both against llama.cpp's own spread.

    check_perplexity.py QUERN TEXT [--types Q8_0,Q4_0,...] [--within 0.1] [--strict]

The model is SmolLM2-135M, the files are made by llama-quantize of its F16 form (Q4_1 is the published file). llama-perplexity runs three times: with
its defaults, without flash attention, and without it and with keys and values in float32. These differ in rounding alone, so the largest
difference among them is what rounding does on this text. quern must be within that spread, or within --within per cent of the nearest of the
three, whichever is more; with --strict within --within per cent of the defaults. Exit code 1 if it is not.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import common

VARIANTS = {"defaults": [], "no flash attention": ["-fa", "off"], "float32 cache": ["-fa", "off", "-ctk", "f32", "-ctv", "f32"]}


def model(kind, work):
    published = common.cache() / "smollm2.gguf"
    if kind == "Q4_1":
        return published
    path = work / f"{kind}.gguf"
    if not path.exists():
        f16 = work / "F16.gguf"
        if not f16.exists():
            common.quantize(published, f16, "F16", "--allow-requantize")
        if kind != "F16":
            common.quantize(f16, path, kind)
    return path


def real(file, text, options):
    said = common.run([common.tool("llama-perplexity"), "-m", file, "-f", text, "-t", "2", *options])
    return float(re.findall(r"Final estimate: PPL = ([0-9.]+)", said)[-1])


def ours(quern, file, text):
    said = subprocess.run([quern, "ppl", file, "-f", text, "--act", "q8", "--json", "--progress", "none"], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(said)["perplexity"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quern", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--types", default="Q4_1,Q8_0,Q4_0,Q4_K_M,Q6_K")
    parser.add_argument("--within", type=float, default=0.1, help="per cent")
    parser.add_argument("--strict", action="store_true")
    args = parser.parse_args()
    work = common.cache() / "smollm2"
    work.mkdir(exist_ok=True)
    bad = 0
    for kind in args.types.split(","):
        file = model(kind, work)
        peers = {name: real(file, args.text, options) for name, options in VARIANTS.items()}
        got = ours(args.quern.resolve(), file, args.text)
        apart = {name: 100 * (got / p - 1) for name, p in peers.items()}
        spread = 100 * (max(peers.values()) / min(peers.values()) - 1)
        ok = abs(apart["defaults"]) <= args.within if args.strict else min(map(abs, apart.values())) <= max(args.within, spread)
        bad += not ok
        print(f"{kind}: quern {got:.4f}; " + "; ".join(f"llama.cpp, {n}: {peers[n]:.4f} ({apart[n]:+.3f} %)" for n in peers)
              + f"; its own spread {spread:.3f} %: {'within' if ok else 'BEYOND'}", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
