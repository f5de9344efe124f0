"""Runs the real llama-quantize with every file type, with and without an importance matrix, and writes testdata/convert/presets/MODEL.json.

The matrices are made once by the real llama-imatrix and committed in both of its formats, since the last bits of a matrix depend on the
machine it is made on; --matrices makes them anew.
"""

import argparse
import json
import re
import shutil

import common
import ggufview
from make_types import FTYPES

OUT = common.GOLDENS / "presets"
MODELS = ["stories-wide", "stories-moe"]


def source(name):
    path = common.cache() / "out" / name / f"{name}.f16.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        common.convert(common.TESTDATA / "models" / name, path, "--outtype", "f16")
    return path


def matrices(name, text):
    for kind in ("gguf", "dat"):
        common.run([common.tool("llama-imatrix"), "-m", source(name), "-f", text.name, "-c", "256", "--no-ppl", "-t", "1",
                    "-o", OUT / f"{name}.imatrix.{kind}", "--output-format", kind], cwd=text.parent)


def entry(path, ftype, matrix):
    s = ggufview.summary(path)
    head = {"ftype": ftype} | ({"imatrix": matrix.name} if matrix else {}) | {"sha256": s["sha256"], "size": s["size"]}
    tail = s["kv"][[k[0] for k in s["kv"]].index("general.quantization_version") :]
    return head | {"last_kv": tail, "tensors": [[t[0], t[1], t[4]] for t in s["tensors"] if t[1] != "F32"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrices", type=common.Path, metavar="TEXT", help="make the importance matrices anew from this text")
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        if args.matrices:
            matrices(name, args.matrices.resolve())
        work = common.cache() / "presets" / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        runs = []
        for matrix in (None, OUT / f"{name}.imatrix.gguf", OUT / f"{name}.imatrix.dat"):
            # one type is enough to see that the older format means the same
            ftypes = ["Q4_K_M", "IQ2_XS"] if matrix and matrix.suffix == ".dat" else FTYPES
            for ftype in ftypes:
                path = work / f"{ftype}.gguf"
                options = ["--imatrix", matrix.name] if matrix else []
                # the tool writes the matrix's path into the file, so it runs beside it
                try:
                    common.run([common.tool("llama-quantize"), *options, source(name), path, ftype, "2"], cwd=OUT)
                    runs.append(entry(path, ftype, matrix))
                except RuntimeError as e:
                    said = re.search(r"failed to quantize: (.*)", str(e))
                    runs.append({"ftype": ftype} | ({"imatrix": matrix.name} if matrix else {}) | {"error": said.group(1) if said else "exit code"})
        line = lambda v: json.dumps(v, separators=(",", ":"))
        text = ",\n ".join(line(r).replace(',"tensors":', ',\n  "tensors":') for r in runs)
        target = OUT / f"{name}.json"
        target.write_text(f'{{"model":{line(name)},"from":"{name}.f16.gguf","runs":[\n {text}\n]}}\n')
        json.loads(target.read_text())
        print(target, len(runs), target.stat().st_size, [(r["ftype"], r.get("imatrix"), r["error"]) for r in runs if "error" in r])


if __name__ == "__main__":
    main()
