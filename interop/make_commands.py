"""Runs the real llama-quantize with every kind of option and writes testdata/convert/commands.json: command lines with the SHA-256 of what they wrote.

    make_commands.py                      make the golden
    make_commands.py --check QUERN        run quern's own quantize beside it instead, on the story models and on the published model

A command is a list of arguments as both tools take them, run in a folder that holds the inputs; an entry without outputs failed. With --check
a second list is run as well: every file type on SmolLM2-135M (rows of 576, so most superblock types fall back), plain and with a matrix.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys

import common
from make_presets import OUT as MATRICES
from make_types import FTYPES

GOLDEN = common.GOLDENS / "commands.json"
W, M = "stories-wide.f16.gguf", "stories-moe.f16.gguf"
SPLIT = "stories-wide-00001-of-00005.gguf"
IM = ["--imatrix", "stories-wide.imatrix.gguf"]
TYPES = "types.txt"

COMMANDS = [
    [W, "out.gguf", "Q4_K_M"],
    [W, "q4_k"],
    [W, "15", "1"],
    [W, "out.gguf", "COPY"],
    [M, "copy"],
    ["--pure", W, "out.gguf", "Q6_K"],
    ["--leave-output-tensor", W, "out.gguf", "Q5_K_S"],
    ["--output-tensor-type", "q5_1", W, "out.gguf", "Q4_0"],
    ["--output-tensor-type", "Q4_K", "--token-embedding-type", "q8_0", W, "out.gguf", "Q4_K_M"],
    ["--token-embedding-type", "q4_1", "--pure", M, "out.gguf", "Q8_0"],
    ["--token-embedding-type", "q6_K", M, "out.gguf", "Q4_0"],
    ["--tensor-type", "ATTN_V=q8_0", W, "out.gguf", "Q4_K_M"],
    ["--tensor-type", r"blk\.[1-3]\.ffn_(?!down)=q3_K", "--tensor-type", "ffn=q5_K", W, "out.gguf", "Q4_K_M"],
    ["--tensor-type", "nothing=q8_0", W, "out.gguf", "Q4_K_S"],
    ["--tensor-type", "attn_v=q8_0", W, "out.gguf", "F16"],
    ["--tensor-type", "attn_v=bf16", W, "out.gguf", "Q3_K_M"],
    ["--tensor-type-file", TYPES, M, "out.gguf", "Q4_K_M"],
    ["--prune-layers", "1", W, "out.gguf", "Q4_K_M"],
    ["--prune-layers", "3,0,0", W, "out.gguf", "Q3_K_L"],
    ["--prune-layers", "2", *IM, W, "out.gguf", "IQ2_M"],
    ["--prune-layers", "0", M, "COPY"],
    ["--override-kv", "general.name=str:renamed", "--override-kv", "test.int=int:-7", "--override-kv", "test.f=float:0.1", "--override-kv", "test.b=bool:true", W, "out.gguf", "Q8_0"],
    ["--override-kv", "general.file_type=int:1", *IM, W, "out.gguf", "Q2_K_S"],
    ["--override-kv", "quantize.imatrix.entries_count=int:1", *IM, W, "out.gguf", "Q4_1"],
    [*IM, W, "out.gguf", "Q4_0"],
    [*IM, "--include-weights", "ffn_down", W, "out.gguf", "Q4_K_M"],
    [*IM, "--include-weights", "ffn_down", "--include-weights", "blk.1", W, "out.gguf", "Q4_K_M"],
    [*IM, "--exclude-weights", "attn", W, "out.gguf", "IQ4_XS"],
    [*IM, "--exclude-weights", "blk", W, "out.gguf", "Q4_0"],
    [*IM, "--exclude-weights", "attn_q", W, "out.gguf", "IQ3_XXS"],
    [SPLIT, "out.gguf", "Q4_K_M"],
    ["--keep-split", SPLIT, "out.gguf", "Q4_K_M"],
    ["--keep-split", SPLIT, "Q5_0"],
    ["--keep-split", W, "out.gguf", "Q4_0"],
    ["--keep-split", *IM, SPLIT, "out.gguf", "Q2_K_S"],
    ["--keep-split", SPLIT, "out.gguf", "COPY"],
    ["--max-buffer-size", "1", W, "out.gguf", "Q6_K", "2"],
    [W, "out.gguf", "IQ2_XXS"],
    [W, "out.gguf", "Q9_K"],
    ["--include-weights", "a", "--exclude-weights", "b", *IM, W, "out.gguf", "Q4_0"],
    ["q8.gguf", "out.gguf", "Q4_K_M"],
    *[["--allow-requantize", f"{a}.gguf", "out.gguf", b] for a, b in [
        ("q8", "Q4_K_M"), ("q4km", "Q5_K_M"), ("q4km", "F16"), ("q2k", "Q8_0"), ("iq4xs", "BF16"), ("q6k", "IQ4_NL"), ("iq2m", "Q3_K_S"), ("iq3", "TQ2_0"), ("tq1", "Q8_0"),
        ("mxfp4", "F32"), ("q4km", "COPY"), ("iq1m", "Q4_0"), ("q50", "Q4_1")]],
]

# what the requantized files are made with, before the list
PREPARED = {"q8": "Q8_0", "q4km": "Q4_K_M", "q2k": "Q2_K", "iq4xs": "IQ4_XS", "q6k": "Q6_K", "iq2m": "IQ2_M", "iq3": "IQ3_XXS", "tq1": "TQ1_0", "mxfp4": "MXFP4_MOE", "iq1m": "IQ1_M", "q50": "Q5_0"}


def inputs(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("stories-wide", "stories-moe"):
        common.convert(common.TESTDATA / "models" / name, folder / f"{name}.f16.gguf", "--outtype", "f16")
    common.convert(common.TESTDATA / "models" / "stories-wide", folder / "stories-wide.gguf", "--outtype", "f16", "--split-max-tensors", "10")
    for p in MATRICES.glob("stories-wide.imatrix.*"):
        shutil.copy(p, folder)
    (folder / TYPES).write_text("ffn_down=q8_0\nattn_[qk]=q5_0  exps=q4_1\n")
    for name, kind in PREPARED.items():
        common.run([common.tool("llama-quantize"), *IM, W, f"{name}.gguf", kind, "2"], cwd=folder)


def attempt(program, args, folder):
    """Runs one command line; gives the digests of new files, or None."""
    before = set(folder.iterdir())
    done = subprocess.run([str(p) for p in program] + args, cwd=folder, env=common.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    new = sorted(set(folder.iterdir()) - before)
    sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in new}
    for p in new:
        p.unlink()
    return (sums if done.returncode == 0 else None), done.stdout.decode("utf-8", "replace")


def run(command, folder):
    return attempt([common.tool("llama-quantize")], command, folder)


def published(folder):
    """Every file type on the published model, made F16 first."""
    shutil.copy(common.cache() / "smollm2.gguf", folder / "smollm2.gguf")
    common.run([common.tool("llama-quantize"), "--allow-requantize", "smollm2.gguf", "smollm2.f16.gguf", "F16", "2"], cwd=folder)
    text = (common.TESTDATA / "models" / "stories-wide" / "tokenizer_config.json").read_text() * 8
    (folder / "calibration.txt").write_text(text + (common.PROJECT / "README.md").read_text())
    common.run([common.tool("llama-imatrix"), "-m", "smollm2.f16.gguf", "-f", "calibration.txt", "-c", "128", "--chunks", "8", "--no-ppl", "-t", "2", "-o", "smollm2.imatrix"], cwd=folder)
    for matrix in ([], ["--imatrix", "smollm2.imatrix"]):
        for ftype in [*FTYPES, "COPY"]:
            yield [*matrix, "smollm2.f16.gguf", "out.gguf", ftype]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="QUERN", type=common.Path)
    parser.add_argument("--only", choices=["stories", "published"], help="with --check: half of the list")
    args = parser.parse_args()
    work = common.cache() / "commands"
    shutil.rmtree(work, ignore_errors=True)
    inputs(work)
    if not args.check:
        found = []
        for c in COMMANDS:
            sums, text = run(c, work)
            found.append({"args": c} | ({"outputs": sums} if sums is not None else {}))
            print(c, sums or text.strip().splitlines()[-1])
        digests = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(work.glob("stories-*.gguf")) if "imatrix" not in p.name}
        body = ",\n ".join(json.dumps(e) for e in found)
        GOLDEN.write_text(json.dumps({"inputs": digests, "types": (work / TYPES).read_text(), "prepared": PREPARED})[:-1] + f', "commands": [\n {body}\n]}}\n')
        json.loads(GOLDEN.read_text())
        return
    quern, same, different = args.check.resolve(), 0, 0
    todo = ([] if args.only == "published" else COMMANDS) + ([] if args.only == "stories" else list(published(work)))
    for c in todo:
        want, _ = run(c, work)
        got, text = attempt([quern, "quantize", "--progress", "none"], c, work)
        if want == got:
            same += 1
            continue
        different += 1
        print("DIFFERENT", " ".join(c), "\n  llama-quantize:", want, "\n  quern:", got, "\n ", text.strip()[-400:], flush=True)
    print(f"{same} command lines alike, {different} different")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
