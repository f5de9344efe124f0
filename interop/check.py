"""Compares a built quern with the real tools, made to run here and now.

    check.py QUERN [--only bytes|run] [--models NAME,...] [--outtypes NAME,...] [--ftypes NAME,...] [--strict] [--keep]

bytes  builds recipes with quern over the story models and the tiny ones; convert_hf_to_gguf.py and llama-quantize do the same work, and the
       files must have the same SHA-256. A difference is shown key by key and tensor by tensor.
run    loads files that quern wrote into the real llama.cpp, which must answer with the published greedy text.

A recipe that this quern refuses as unknown (exit code 2) is listed as not offered; with --strict that fails too. The exit code is 0 when
everything compared was equal and something was compared.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import common
import ggufview
import weights
from make_types import FTYPES

STORIES = ["stories260k", "stories-wide", "stories-moe"]
TINY = ["tiny-llama3", "tiny-llama-tied", "tiny-llama-hf", "tiny-mistral", "tiny-mixtral", "tiny-qwen2", "tiny-qwen3", "tiny-qwen3moe",
        "tiny-gemma3", "tiny-gemma3-vision"]
OUT = "out.gguf"


class NotOffered(Exception):
    """quern does not know something that the recipe asks for."""


class Case:
    """One piece of work for both sides. ftype None: the converter alone."""

    def __init__(self, model, outtype="f16", ftype=None, options=(), steps=None):
        self.model, self.outtype, self.ftype, self.options = model, outtype, ftype, list(options)
        self.steps = steps

    def __str__(self):
        return " ".join([self.model, self.outtype, *([self.ftype] if self.ftype else []), *self.options])

    def recipe(self):
        """The work as quern is told to do it; JSON is YAML too."""
        steps = self.steps
        if steps is None:
            steps = [{"convert": {"outtype": self.outtype}}]
            if self.ftype:
                steps.append({"quantize": {"preset": self.ftype} | ({"pure": True} if "--pure" in self.options else {})})
        return {"version": 1, "name": "interop", "sources": {"base": {"dir": str(folder(self.model))}}, "steps": steps,
                "outputs": [{"format": "gguf", "file": OUT}]}

    def real(self, work):
        """The same work by the real tools."""
        converted = work / f"{self.model}.{self.outtype}.gguf"
        if not converted.exists():
            common.convert(folder(self.model), converted, "--outtype", self.outtype)
        if not self.ftype:
            return converted
        path = work / f"{self.model}.{self.outtype}.{self.ftype}{''.join(self.options)}.gguf"
        common.quantize(converted, path, self.ftype, *self.options)
        return path


def folder(model):
    if model in STORIES:
        return common.TESTDATA / "models" / model
    path = common.cache() / "models" / model
    return path if path.exists() else weights.build(model, path.parent)


def quern_build(quern, recipe, work):
    """Runs `quern build`; its own store and caches go to the work folder too."""
    recipe_file, out = work / "recipe.yaml", work / "quern"
    recipe_file.write_text(json.dumps(recipe))
    shutil.rmtree(out, ignore_errors=True)
    env = dict(common.environment(), HOME=str(work), XDG_CACHE_HOME=str(work / "cache"), XDG_DATA_HOME=str(work / "data"), QUERN_STORE=str(work / "store"),
               QUERN_INTEROP_CACHE=str(common.cache()))
    done = subprocess.run([*quern, "build", recipe_file, "-o", out], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode == 2:
        raise NotOffered(said)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}\n{said[-3000:]}")
    return out / OUT


class Tally:
    def __init__(self):
        self.same, self.different, self.missing = 0, [], []

    def run(self, name, work):
        """Does one piece of work, a function that returns lines on what differs, and counts it."""
        try:
            lines = work()
        except NotOffered as e:
            self.missing.append(name)
            print(f"not offered  {name}: {str(e).splitlines()[-1] if str(e) else ''}", flush=True)
            return
        except (RuntimeError, OSError, ValueError, KeyError) as e:
            lines = [f"{type(e).__name__}: {e}"]
        if lines:
            self.different.append(name)
            print(f"DIFFERENT    {name}", *(f"             {x}" for x in lines), sep="\n", flush=True)
        else:
            self.same += 1
            print(f"same         {name}", flush=True)


def compare(real, ours):
    return ggufview.differences(ggufview.summary(real), ggufview.summary(ours))


def byte_cases(models, outtypes, ftypes):
    for m in models:
        for outtype in outtypes:
            yield Case(m, outtype)
        for ftype in ftypes:
            yield Case(m, "f16", ftype)
            yield Case(m, "f16", ftype, ["--pure"])
    # the acceptance recipes, as they are worded
    if "stories-wide" in models:
        yield Case("stories-wide", "f16", "Q8_0", steps=[{"quantize": {"preset": "Q8_0"}}])
    if "stories-moe" in models:
        for ftype in ("Q8_0", "Q4_0"):
            yield Case("stories-moe", "f16", ftype, ["--pure"], steps=[{"quantize": {"type": ftype, "fallback": "F16"}}])


def check_bytes(quern, cases, work, tally):
    for case in cases:
        def both(case=case):
            with ThreadPoolExecutor(1) as pool:
                real = pool.submit(case.real, work)
                ours = quern_build(quern, case.recipe(), work)
            return compare(real.result(), ours)

        tally.run(f"bytes  {case}", both)


# What must not change the function: steps around the conversion, and how many tokens of the published text must come out. The expert model is
# in float16 itself, where the last two tokens are nearly even; llama.cpp's own float16 file parts from the text there too.
FUNCTIONS = [
    ("as it is", "f32", [], [], {}),
    ("as it is", "f16", [], [], {"stories-moe": 198}),
    ("feed-forward padded", "f32", [], [{"pad": {"ffn": 32}}], {}),
    ("vocabulary padded", "f32", [{"pad": {"vocab": 96}}], [], {}),
    ("experts last", "f32", [], [{"reorder": {"experts": "last"}}], {}),
]


def greedy(path, count):
    done = subprocess.run([common.tool("peer"), "greedy", path, str(count)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=common.environment())
    if done.returncode != 0:
        raise RuntimeError(f"llama.cpp does not run the file: {done.stderr.decode('utf-8', 'replace')[-1500:]}")
    return [int(x) for x in done.stdout.split()]


def check_run(quern, models, work, tally):
    golden = json.loads((common.TESTDATA / "golden/runtime/golden.json").read_text(encoding="utf-8"))
    for model in [m for m in models if m in STORIES]:
        for what, outtype, before, after, limits in FUNCTIONS:
            if what == "experts last" and model != "stories-moe":
                continue
            want = golden[model]["greedy_from_bos"]
            want = want[: limits.get(model, len(want))]

            steps = [*before, {"convert": {"outtype": outtype}}, *after]

            def play(case=Case(model, outtype, steps=steps), want=want):
                got = greedy(quern_build(quern, case.recipe(), work), len(want))
                if got == want:
                    return []
                at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
                return [f"{len(got)} tokens, token {at} is {got[at:at + 3]}, want {want[at:at + 3]}"]

            tally.run(f"run    {model} {outtype}, {what}", play)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quern", help="the built binary")
    parser.add_argument("--only", choices=["bytes", "run"])
    parser.add_argument("--models", default=",".join(STORIES + TINY))
    parser.add_argument("--outtypes", default=",".join(common.OUTTYPES), help="output types of the converter")
    parser.add_argument("--ftypes", default=",".join(common.QUANTIZE), help="file types of llama-quantize; 'all' for every one that needs no importance matrix")
    parser.add_argument("--strict", action="store_true", help="fail when a recipe is refused as unknown")
    parser.add_argument("--keep", action="store_true", help="leave the work folder and say where it is")
    args = parser.parse_args()
    models = args.models.split(",")
    unknown = set(models) - set(STORIES + TINY)
    if unknown:
        parser.error(f"unknown models {sorted(unknown)}")
    if args.ftypes == "all":
        ftypes = [f for f in FTYPES if not f.startswith(("IQ1", "IQ2", "IQ3_X", "Q2_K_S", "Q1_0"))]
    else:
        ftypes = args.ftypes.split(",")
    quern = [sys.executable, args.quern] if args.quern.endswith(".py") else [Path(args.quern).resolve()]
    tally = Tally()
    work = Path(tempfile.mkdtemp(prefix="quern-interop-"))
    try:
        if args.only != "run":
            check_bytes(quern, byte_cases(models, args.outtypes.split(","), ftypes), work, tally)
        if args.only != "bytes":
            check_run(quern, models, work, tally)
    finally:
        if args.keep:
            print(f"files are in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    print(f"{tally.same} same, {len(tally.different)} different, {len(tally.missing)} not offered")
    failed = tally.different or not tally.same or (args.strict and tally.missing)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
