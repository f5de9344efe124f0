"""Writes testdata/cact/needle2-w4a8.safetensors: logits of the JAX model of generation 2 with quantization on, over the checkpoints needle2-a and
needle2-b put through CQ. Needs cactus-needle 2.0.15 in front of the version in requirements-cact.txt, see the Makefile.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_platforms", "cpu")

from needle.model import architecture, quantize
from safetensors import safe_open
from safetensors.numpy import save_file

OUT = Path(__file__).resolve().parent.parent / "testdata" / "cact"
TOKENS = [[2, 403, 407, 261], [378, 432, 383, 286]]


def main():
    out = {}
    for letter in "ab":
        with safe_open(OUT / f"needle2-{letter}.safetensors", "np") as f:
            config = json.loads(f.metadata()["config"])
            flat = {k: f.get_tensor(k).astype(np.float32) for k in f.keys()}
        params = {}
        for name, value in flat.items():
            node = params
            *path, leaf = name.split("/")
            for part in path:
                node = node.setdefault(part, {})
            node[leaf] = jnp.asarray(value)
        model = architecture.SimpleAttentionNetwork(architecture.TransformerConfig(**dict(config, dtype="float32", remat=False)))
        params = quantize.cq_quantize_params(params, 4, 128)
        logits = np.asarray(jax.jit(lambda t: model.apply({"params": params}, t, quant=True))(jnp.asarray(TOKENS, jnp.int32)))
        for i in range(len(TOKENS)):
            out[f"{letter}.{i}"] = np.ascontiguousarray(logits[i])
    save_file(out, OUT / "needle2-w4a8.safetensors")


if __name__ == "__main__":
    main()
