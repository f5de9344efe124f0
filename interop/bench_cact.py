"""Times Needle's exporter on an archive of the published shape: generation 3 with the defaults of its config, random bfloat16 weights, no tokenizer.

    bench_cact.py make DIR      writes DIR/needle3.safetensors (256 MB)
    bench_cact.py export DIR    exports it to DIR/needle3.cact and prints seconds: of the export alone, as `needle build` does it in one process, and
                                of the whole process with imports and reading

The export is single-threaded but for numpy's matrix products.
"""

import dataclasses
import os
import resource
import sys
import time

start = time.monotonic()

import jax

jax.config.update("jax_platforms", "cpu")

import ml_dtypes
import numpy as np
from needle.model import architecture, checkpoints, export


def make(folder):
    import make_cact
    config = architecture.TransformerConfig()
    spec = dict(seed=1, dtype=ml_dtypes.bfloat16, heads=True)
    params = make_cact.make_params(config, spec)
    checkpoints.write_checkpoint(os.path.join(folder, "needle3.safetensors"),
                                 {"format_version": 2, "params": params, "config": dataclasses.asdict(config), "step": 0, "run": {}})


def run(folder):
    begun = time.monotonic()
    ckpt = checkpoints.read_checkpoint(os.path.join(folder, "needle3.safetensors"))
    config = architecture.TransformerConfig.from_saved(ckpt["config"])
    params = {k: v for k, v in ckpt["params"].items() if not k.startswith("mtp_")}
    read = time.monotonic()
    info = export.write_export(params, config, os.path.join(folder, "needle3.cact"), kv_window=architecture.effective_kv_window(config))
    done = time.monotonic()
    weights = sum(a.size for a in checkpoints.flatten(params).values())
    print(f"{weights / 1e6:.1f} M weights, {info['bytes'] / 1e6:.1f} MB, {info['tensors']} tensors")
    print(f"read {read - begun:.2f} s, export {done - read:.2f} s, process {done - start:.2f} s, processor {time.process_time():.2f} s, "
          f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB, {os.cpu_count()} processors, numpy {np.__version__}")


if __name__ == "__main__":
    {"make": make, "export": run}[sys.argv[1]](sys.argv[2])
