"""Holds quern's perplexity in --act q8 against llama-perplexity's with its defaults: every chunk's number as printed, the final one with its error, all digits.

    check_perplexity.py QUERN [TEXT...] [--types Q8_0,Q4_0,...] [--chunks N]

The model is SmolLM2-135M, the files are made by llama-quantize of its F16 form, of every type that it offers and that needs no importance matrix unless --types
says which (Q4_1 is the published file). The texts are three of 20 KB out of llama.cpp's sources unless others are named. Exit code 1 where anything differs.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import common

TYPES = ("F32,F16,BF16,Q8_0,Q4_0,Q4_1,Q5_0,Q5_1,Q2_K,Q3_K_S,Q3_K_M,Q3_K_L,Q4_K_S,Q4_K_M,Q5_K_S,Q5_K_M,Q6_K,IQ4_NL,IQ4_XS,IQ3_S,IQ3_M,IQ3_XS,"
         "TQ1_0,TQ2_0,MXFP4_MOE")
TEXTS = {"server.md": "tools/server/README.md", "context.cpp": "src/llama-context.cpp", "build.md": "docs/build.md"}


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
            try:
                common.quantize(f16, path, kind)
            except RuntimeError as err:
                path.unlink(missing_ok=True)
                if "importance matrix" not in str(err):
                    raise
                return None
    return path


def texts(named, work):
    if named:
        return named
    for name, path in TEXTS.items():
        (work / name).write_bytes((common.sources() / path).read_bytes()[:20000])
    return [work / name for name in TEXTS]


def real(file, text, chunks):
    said = common.run([common.tool("llama-perplexity"), "-m", file, "-f", text, "-t", "2", *chunks])
    return re.findall(r"\[\d+\]([0-9.]+)", said), re.findall(r"PPL = ([0-9.]+ \+/- [0-9.]+)", said)[-1]


def ours(quern, file, text, chunks):
    done = subprocess.run([quern, "ppl", file, "-f", text, "--act", "q8", "--progress", "plain", *chunks], check=True, capture_output=True, text=True)
    return re.findall(r"chunk \d+ of \d+: perplexity ([0-9.]+)", done.stderr), re.findall(r"^perplexity +([0-9.]+ \+/- [0-9.]+)", done.stdout)[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quern", type=Path)
    parser.add_argument("text", type=Path, nargs="*")
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--chunks", type=int, default=0)
    args = parser.parse_args()
    work = common.cache() / "smollm2"
    work.mkdir(exist_ok=True)
    chunks = ["--chunks", str(args.chunks)] if args.chunks else []
    bad = 0
    for kind in args.types.split(","):
        file = model(kind, work)
        if file is None:
            print(f"{kind}: needs an importance matrix, left out", flush=True)
            continue
        for text in texts(args.text, work):
            want, got = real(file, text, chunks), ours(args.quern.resolve(), file, text, chunks)
            bad += want != got
            print(f"{kind} {text.name}: {len(want[0])} chunks, {want[1]}: {'equal' if want == got else f'DIFFERENT, quern {got[1]}, chunks {got[0]} for {want[0]}'}", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
