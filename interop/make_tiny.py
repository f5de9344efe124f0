"""Quantizes the tiny models that quern's tests make up (stages/all/builtin_models_test.go) with the real llama-quantize and writes testdata/convert/tiny.json.

They are GGUF files of architectures with tensors of their own (linear attention, latent attention, shared experts), in rows of 256. A run has
`model`, `args` and `sha256`, or `error`. What llama.cpp computes of two of them in float32 goes into testdata/golden/runtime/tiny-archs.json.
"""

import array
import hashlib
import json
import os
import re
import shutil
import subprocess

import common

RUNS = [["Q4_K_M"], ["--pure", "Q4_K_M"], ["Q2_K"], ["Q3_K_L"], ["Q5_K_S"], ["Q8_0"], ["IQ4_XS"], ["IQ2_XXS"],
        ["--imatrix", "IM", "IQ2_XXS"], ["--imatrix", "IM", "--pure", "Q4_K_M"], ["--imatrix", "IM", "IQ3_M"],
        ["--imatrix", "IM", "--pure", "--tensor-type", "ffn_(gate|up|down)_exps=Q2_K", "Q4_K_M"]]
TOKENS = [5, 17, 99, 300, 41, 7, 200, 310, 12, 12, 9, 87]
MODELS = ["tiny-qwen35", "tiny-qwen35-untied", "tiny-bailingmoe2", "tiny-bailingmoe3"]


def main():
    work = common.cache() / "tiny"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    subprocess.run(["go", "test", "-count=1", "-run", "^TestTinyModels$", "./stages/all"], cwd=common.PROJECT, check=True,
                   env=os.environ | {"QUERN_TINY": str(work), "GOFLAGS": ""})
    doc = {"models": {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(work.iterdir())}, "runs": []}
    for model in MODELS:
        for args in RUNS:
            if "--tensor-type" in args and "qwen35" in model:
                continue
            args = [a if a != "IM" else f"{model}.imatrix.gguf" for a in args]
            run = {"model": model, "args": args}
            out = work / "out.gguf"
            try:
                common.run([common.tool("llama-quantize"), *args[:-1], f"{model}.gguf", out, args[-1], "2"], cwd=work)
                run["sha256"] = hashlib.sha256(out.read_bytes()).hexdigest()
            except RuntimeError as e:
                said = re.search(r"failed to quantize: (.*)|error: (.*)", str(e))
                run["error"] = said.group(0) if said else str(e)[-200:]
            doc["runs"].append(run)
            print(run, flush=True)
    logits = {}
    for model in ("tiny-qwen35", "tiny-bailingmoe2"):
        said = subprocess.run([common.tool("peer"), "logits", work / f"{model}.f32.gguf", ",".join(map(str, TOKENS))], env=common.environment(), check=True,
                              stdout=subprocess.PIPE).stdout
        values = array.array("f", said)
        rows = [values[i * len(values) // len(TOKENS) :][: len(values) // len(TOKENS)] for i in range(len(TOKENS))]
        ids = list(range(0, len(rows[0]), 37))
        logits[model] = {"tokens": TOKENS, "ids": ids, "largest": max(map(abs, values)), "logits": [[row[i] for i in ids] for row in rows]}
    (common.TESTDATA / "golden/runtime/tiny-archs.json").write_text(json.dumps(logits, separators=(",", ":")) + "\n")
    line = lambda v: json.dumps(v, separators=(",", ":"))
    text = '{"models":%s,\n"runs":[\n %s\n]}\n' % (line(doc["models"]), ",\n ".join(map(line, doc["runs"])))
    (common.GOLDENS / "tiny.json").write_text(text)


if __name__ == "__main__":
    main()
