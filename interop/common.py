"""Where things lie, and how the real tools are run."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
TESTDATA = PROJECT / "testdata"
GOLDENS = TESTDATA / "convert"

OUTTYPES = ["f32", "f16", "bf16", "q8_0", "auto"]
QUANTIZE = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "F16", "BF16"]


def cache():
    """Folder of everything big: the Python environment, the sources and builds of the real tools, converted models."""
    named = os.environ.get("QUERN_INTEROP_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quern-interop"


def sources():
    return cache() / "llama.cpp"


def tool(name):
    path = cache() / "build" / "bin" / name
    if not path.exists():
        sys.exit(f"{path} is missing: run interop/setup.sh first")
    return path


def environment():
    """The tools' environment: no network, no warnings about it, and no GPU."""
    env = dict(os.environ)
    env.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", CUDA_VISIBLE_DEVICES="", PYTHONDONTWRITEBYTECODE="1", LC_ALL="C.UTF-8")
    return env


def run(args, **kw):
    """Runs a real tool and returns its output; on failure prints what it said and stops."""
    done = subprocess.run([str(a) for a in args], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **kw)
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, args))}: exit code {done.returncode}\n{text[-4000:]}")
    return text


def convert(model, out, *args):
    """The unmodified convert_hf_to_gguf.py over one model folder; the folder's name is part of the result."""
    return run([cache() / "venv/bin/python", sources() / "convert_hf_to_gguf.py", model, "--outfile", out, *args])


def quantize(source, out, kind, *args):
    """The real llama-quantize, options first as it wants them."""
    return run([tool("llama-quantize"), *args, source, out, kind, "2"])
