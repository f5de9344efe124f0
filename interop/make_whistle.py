"""Writes testdata/cact/whistle.safetensors and whistle.cact: a small speech checkpoint with random weights, and the archive that Needle's exporter makes of
it since 3.2.4. Needs that version in front of the one in requirements-cact.txt, see the Makefile.
"""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

jax.config.update("jax_platforms", "cpu")

import make_cact
from needle.model import checkpoints, export, whistle
from sentencepiece import sentencepiece_model_pb2

CONFIG = whistle.WhistleConfig(text=400, languages=("en", "de"), dim=64, kv_heads=1, qk_dim=8, v_dim=16, enc_layers=2, dec_layers=3, conv_kernel=5, taps=3,
                               lanes=2, enc_lanes=3, sites=(1,), slots=24, hashes=2, stem=8, stem_stages=3, mels=16, fft=128, win=100, hop=40, rate=4000,
                               max_tokens=48)


def main():
    model = whistle.Whistle(CONFIG)
    got = jax.eval_shape(lambda: model.init(jax.random.PRNGKey(0), jnp.zeros((1, 4000)), jnp.asarray([4000]), jnp.ones((1, 4), jnp.int32)))["params"]
    shapes = checkpoints.flatten(jax.tree.map(lambda a: np.zeros(a.shape, np.int8), got))
    rng = np.random.RandomState(41)
    flat = {}
    for name, a in sorted(shapes.items()):
        leaf = name.rsplit("/", 1)[-1]
        scale = 1 / np.sqrt(np.prod(a.shape[-4:-1])) if leaf.startswith("dw") or leaf == "w" else None
        x = rng.standard_normal(a.shape) * scale if scale else make_cact.fill(name, a.shape, rng)
        flat[name] = np.asarray(x).astype(ml_dtypes.bfloat16)
    params = checkpoints.unflatten(flat)
    path = make_cact.OUT / "whistle.safetensors"
    checkpoints.write_checkpoint(path, {"format_version": 2, "params": params, "config": dataclasses.asdict(CONFIG), "step": 7, "run": {"name": "whistle"}})
    make_cact.settle(path)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString((make_cact.OUT / "needle3-dummy.model").read_bytes())
    info = export.write_export(params, CONFIG.needle(), make_cact.OUT / "whistle.cact", tokenizer=export.whistle_tokenizer_blob(proto, CONFIG.languages),
                               audio=CONFIG)
    print(info, file=sys.stderr)


if __name__ == "__main__":
    main()
