"""Writes testdata/cact/whistle*: a small speech checkpoint with random weights, what Needle's exporter makes of it since 3.2.4, and what its JAX model
computes. Needs that version in front of the one in requirements-cact.txt, see the Makefile.

    whistle.safetensors         the checkpoint; whistle.cact its archive
    whistle-lora.safetensors    an adapter with two new pieces and a new language; whistle-lora.cact the archive with it
    whistle-layers2.cact        the archive of two of the three layers of the decoder
    whistle-mel.json            digests of mel bands of other rates and sizes
    whistle-logits.safetensors  what the encoder and the decoder give, in float64 arithmetic, and what greedy decoding writes; as in make_cact.py the sounds
                                and tokens of the quantized results are picked so that no activation lies near the border of two steps
"""

import dataclasses
import hashlib
import json
import math
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

jax.config.update("jax_platforms", "cpu")

import make_cact
from needle.model import architecture, checkpoints, export, quantize, whistle, whistle_finetune
from safetensors.numpy import save_file
from sentencepiece import sentencepiece_model_pb2

CONFIG = whistle.WhistleConfig(text=400, languages=("en", "de"), dim=64, kv_heads=1, qk_dim=8, v_dim=16, enc_layers=2, dec_layers=3, conv_kernel=5, taps=3,
                               lanes=2, enc_lanes=3, sites=(1,), slots=24, hashes=2, stem=8, stem_stages=3, mels=16, fft=128, win=100, hop=40, rate=4000,
                               max_tokens=48)


NEW_PIECES, NEW_LANGUAGES = ("\u2581zz", "qqq"), ("pt",)


class Tokenizer:
    """The two things that the builder asks of WhistleTokenizer, whose own model would have to be downloaded."""

    def __init__(self, pieces=(), languages=CONFIG.languages):
        self.proto = sentencepiece_model_pb2.ModelProto()
        self.proto.ParseFromString((make_cact.OUT / "needle3-dummy.model").read_bytes())
        low = min(p.score for p in self.proto.pieces)
        for k, piece in enumerate(pieces):
            self.proto.pieces.add(piece=piece, score=low - 1 - k)
        self.pieces, self.languages, self.text = tuple(pieces), tuple(languages), len(self.proto.pieces)

    def blob(self):
        return export.whistle_tokenizer_blob(self.proto, self.languages)


def make_params():
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
    return flat


def make_adapter(flat, rng):
    lora = {}
    for name in sorted(flat):
        if name.endswith("/kernel") and "/layers/" in name and any(t in name for t in make_cact.finetune.LORA_TARGETS):
            shape = flat[name].shape
            lora[name] = {"A": (rng.standard_normal((*shape[:-1], 2)) / 2).astype(np.float32),
                          "B": (rng.standard_normal((*shape[:-2], 2, shape[-1])) * 0.05).astype(np.float32)}
    rows = (0.5 * rng.standard_normal((len(NEW_PIECES) + len(NEW_LANGUAGES), CONFIG.dim))).astype(np.float32)
    return {"lora": lora, "rows": rows, "scale": 2.0, "base": "whistle.safetensors", "rank": 2, "seed": 7, "pieces": list(NEW_PIECES),
            "languages": [*CONFIG.languages, *NEW_LANGUAGES]}


def as_stored(flat):
    """The parameters as an archive keeps them: matrices through CQ, the rest through float16."""
    out = {}
    for name, a in flat.items():
        x = np.asarray(a).astype(np.float32)
        leaf = name.rsplit("/", 1)[-1]
        if leaf == "kernel" or leaf.startswith("mhc_phi"):
            t = np.swapaxes(x, -1, -2)
            w = t.reshape(-1, t.shape[-1])
            y = export._cq_unpack(*export._cq_pack(w, 4, 128), *w.shape, 4, 128)
            out[name] = np.swapaxes(y.reshape(t.shape), -1, -2)
        elif leaf == "embedding":
            w = x.reshape(-1, x.shape[-1])
            out[name] = export._cq_unpack(*export._cq_pack(w, 4, 128), *w.shape, 4, 128).reshape(x.shape)
        else:
            out[name] = x.astype(np.float16).astype(np.float32)
    return out


class Runner(make_cact.Runner):
    """The speech model over one set of parameters, in float64."""

    def __init__(self, flat, quant=False, kv=0):
        architecture.DTYPE_MAP["float64"] = jnp.float64
        model = whistle.Whistle(dataclasses.replace(CONFIG, dtype="float64", remat=False))
        params = checkpoints.unflatten({k: jnp.asarray(np.asarray(v).astype(np.float64)) for k, v in flat.items()})

        def run(wav, tokens):
            lengths = jnp.full(wav.shape[0], wav.shape[1], jnp.int32)
            enc, frames = model.apply({"params": params}, wav, lengths, quant, method=whistle.Whistle.encode)
            return {"encoder": enc, "frames": frames, "logits": model.apply({"params": params}, tokens, enc, frames, quant, method=whistle.Whistle.logits)}

        self.run, self.kv = jax.jit(run), kv

    def __call__(self, wav, tokens):
        kept = architecture.jnp, quantize.jnp, whistle.jnp, quantize.fake_quant
        quantize.configure_deploy(act_bits=8, kv_bits=self.kv)
        Runner.margins.clear()
        architecture.jnp = quantize.jnp = whistle.jnp = make_cact.Wide()
        quantize.fake_quant = lambda w, group_size=128, bits=4: self.watched(kept[3], w, group_size, bits)
        try:
            out = {k: np.asarray(v) for k, v in self.run(jnp.asarray(wav), jnp.asarray(tokens, jnp.int32)).items()}
        finally:
            architecture.jnp, quantize.jnp, whistle.jnp, quantize.fake_quant = kept
        jax.effects_barrier()
        out["encoder"] = out["encoder"][:, :out["frames"][0]]
        return out


def sound(rng, batch, samples):
    """Noise with a slow swell, in float32 as WAV files hold it."""
    t = np.arange(samples) / CONFIG.rate
    x = rng.standard_normal((batch, samples)) * 0.2 * (1 + np.sin(2 * math.pi * 3 * t)) + 0.3 * np.sin(2 * math.pi * 440 * t)
    return np.clip(x, -1, 1).astype(np.float32)


def greedy(run, wav):
    """Tokens as the exporter's own evaluation decodes them: a tag first, and no tag after it."""
    tokens = np.full((1, CONFIG.max_tokens), CONFIG.pad, np.int32)
    tokens[0, 0] = CONFIG.bos
    tags = np.arange(CONFIG.vocab) >= CONFIG.text
    for pos in range(CONFIG.max_tokens - 1):
        logits = np.array(run(wav, tokens)["logits"][0, pos])
        logits[tags != (pos == 0)] = -np.inf
        tokens[0, pos + 1] = logits.argmax()
        if tokens[0, pos + 1] == CONFIG.eos:
            return tokens[0, :pos + 2].tolist()
    return tokens[0].tolist()


def evaluate(flat):
    rng = np.random.RandomState(43)
    tensors, meta = {}, {}
    wav = sound(rng, 1, 1737)
    tokens = [[CONFIG.bos, CONFIG.tag("de"), *rng.randint(4, CONFIG.text, 12).tolist()]]
    stored = as_stored(flat)

    def record(name, got, wav, tokens):
        tensors[f"{name}.wav"], meta[f"{name}.tokens"] = wav[0], tokens[0]
        for what in ("encoder", "logits"):
            tensors[f"{name}.{what}"] = np.ascontiguousarray(got[what][0].astype(np.float32))

    record("checkpoint", Runner(flat)(wav, tokens), wav, tokens)
    run = Runner(stored)
    record("archive", run(wav, tokens), wav, tokens)
    meta["archive.greedy"] = greedy(run, wav)
    for mode, kv in (("w4a8", 0), ("w4a8kv8", 8)):
        run, tried = Runner(stored, quant=True, kv=kv), 0
        while True:
            wavs = sound(rng, 64, 640)
            texts = np.concatenate([np.full((64, 1), CONFIG.bos), rng.randint(4, CONFIG.vocab, (64, 2))], axis=1)
            run(wavs, texts)
            clear = np.min(np.stack(Runner.margins), axis=0) > make_cact.MARGIN
            tried += 64
            if clear.any():
                break
        i = int(np.argmax(clear))
        print(f"  {mode}: one of {tried}, {len(Runner.margins)} vectors each", file=sys.stderr)
        one = wavs[i:i + 1], texts[i:i + 1].tolist()
        record(mode, run(*one), *one)
    meta = {k: json.dumps(v, separators=(",", ":")) for k, v in meta.items()}
    save_file(tensors, make_cact.OUT / "whistle-logits.safetensors", metadata=meta)
    make_cact.settle(make_cact.OUT / "whistle-logits.safetensors")


def mel_bands():
    """Digests of mel bands of rates and sizes beside the checkpoint's own."""
    lines = []
    for rate, fft, mels in ((16000, 512, 80), (16000, 400, 64), (8000, 256, 40), (22050, 1024, 128), (48000, 2048, 229), (44100, 1023, 80), (1500, 64, 8)):
        bank = whistle.mel_matrix(dataclasses.replace(CONFIG, rate=rate, fft=fft, mels=mels))
        lines.append(json.dumps({"rate": rate, "fft": fft, "mels": mels, "sha256": hashlib.sha256(bank.tobytes()).hexdigest()}))
    (make_cact.OUT / "whistle-mel.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main():
    mel_bands()
    flat = make_params()
    params = checkpoints.unflatten(flat)
    out = make_cact.OUT
    checkpoints.write_checkpoint(out / "whistle.safetensors",
                                 {"format_version": 2, "params": params, "config": dataclasses.asdict(CONFIG), "step": 7, "run": {"name": "whistle"}})
    make_cact.settle(out / "whistle.safetensors")
    plain = Tokenizer()
    print(whistle_finetune.build(params, CONFIG, plain, out / "whistle.cact"), file=sys.stderr)
    print(whistle_finetune.build(*whistle_finetune.rung(params, CONFIG, 2), plain, out / "whistle-layers2.cact"), file=sys.stderr)
    adapter = make_adapter(flat, np.random.RandomState(42))
    checkpoints.write_adapter(out / "whistle-lora.safetensors", adapter)
    make_cact.settle(out / "whistle-lora.safetensors")
    tuned = Tokenizer(NEW_PIECES, adapter["languages"])
    lora = {tuple(k.split("/")): {m: jnp.asarray(v) for m, v in ab.items()} for k, ab in adapter["lora"].items()}
    merged = whistle_finetune.tuned_params(params, CONFIG, tuned, lora, adapter["scale"], adapter["rows"])
    print(whistle_finetune.build(merged, CONFIG, tuned, out / "whistle-lora.cact"), file=sys.stderr)
    evaluate(flat)


if __name__ == "__main__":
    main()
