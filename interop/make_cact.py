"""Writes testdata/cact/needle3-*: small generation-3 checkpoints with random weights, what Needle's own exporter makes of them, and what its JAX
model computes.

    needle3-a   heads of all three kinds, q/k/v taps, sliding window with two global layers, a head over part of the vocabulary, mtp_ parameters to
                drop; bfloat16. Also: a LoRA adapter and the archive built with it, and the archive of three of its four layers.
    needle3-b   split permutations (ladder_widths); float16; as safetensors and as pickle, its adapter too. Also: the archive of half its width.
    needle3-c   18 layers, 16 engram sites, one order, head widths and seed heads left to their defaults; float32. Also: five of its layers.

Logits are float32 as JAX gives them on a CPU with dtype float32. Quantized activations are discontinuous: a value on the border between two int8
steps may go either way with the last bit of a sum, and then everything after it differs by up to a percent. So the token sequences of the W4A8 goldens are
picked: none has an activation within MARGIN of a border, in float64 arithmetic.
"""

import argparse
import dataclasses
import hashlib
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)

import ml_dtypes
import sentencepiece
from needle.model import architecture, checkpoints, export, finetune, quantize
from needle.model.tokenizer import CHAT_MARKERS, SANTokenizer
from safetensors.numpy import save_file

OUT = Path(__file__).resolve().parent.parent / "testdata" / "cact"
MARGIN = 1e-4  # of an int8 step; float32 is good to about 127 * 2e-7 of one here

MODELS = {
    "a": dict(seed=31, dtype=ml_dtypes.bfloat16, full=True, heads=True, config=dict(
        vocab_size=440, out_vocab=400, d_model=96, num_heads=4, num_kv_heads=2, num_layers=4, qk_head_dim=16, v_head_dim=24, max_seq_len=96,
        engram_orders=(2, 3), engram_heads=2, engram_slots=53, engram_layers=(1, 2), global_layers=(1, 3), sliding_window=5,
        qkv_conv_taps=3, mhc_lanes=4, kv_window=40, rope_theta=10000.0, embedding_dim=16, embedding_probes=2, embedding_queries=3,
        confidence_probes=3, confidence_queries=2, router_probes=2, router_queries=2)),
    "b": dict(seed=32, dtype=np.float16, full=True, heads=False, config=dict(
        vocab_size=400, d_model=64, num_heads=4, num_kv_heads=1, num_layers=3, qk_head_dim=8, v_head_dim=16, max_seq_len=512,
        engram_orders=(2, 3), engram_heads=2, engram_slots=40, engram_layers=(0, 2), global_layers=(), sliding_window=6,
        qkv_conv_taps=2, mhc_lanes=3, ladder_depths=(2, 3), ladder_widths=(32,))),
    "c": dict(seed=33, dtype=np.float32, full=False, heads=False, config=dict(
        vocab_size=400, d_model=32, num_heads=2, num_kv_heads=2, num_layers=18, max_seq_len=64, engram_orders=(3,), engram_slots=8,
        engram_seed_heads=5, engram_layers=tuple(i for i in range(18) if i not in (4, 11)), mhc_lanes=2)),
}


def train_tokenizer(path, corpus, dummy):
    """A SentencePiece BPE model of 400 pieces; `<note>` is user-defined to SentencePiece but no marker of Needle's."""
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(path.with_suffix("")), vocab_size=400, model_type="bpe", pad_id=0, eos_id=1, bos_id=2, unk_id=3,
        byte_fallback=True, user_defined_symbols=CHAT_MARKERS + ["<note>"], normalization_rule_name="identity", add_dummy_prefix=dummy,
        num_threads=1, minloglevel=2)
    path.with_suffix(".vocab").unlink()


def names(tree):
    return checkpoints.flatten(tree)


def shapes(model):
    """Name -> shape of every parameter, those of the heads included."""
    tokens = jnp.ones((1, 4), jnp.int32)
    out = {}
    for method in (None, "forward_embedding", "forward_confidence", "forward_router"):
        got = jax.eval_shape(lambda m=method: model.init(jax.random.PRNGKey(0), tokens, method=m))["params"]
        out.update(names(jax.tree.map(lambda a: np.zeros(a.shape, np.int8), got)))
    return {k: v.shape for k, v in out.items()}


def fill(name, shape, rng):
    """Random weights of a size at which every part of the model has its say in the logits."""
    x = rng.standard_normal(shape)
    leaf = name.rsplit("/", 1)[-1]
    if leaf == "kernel" or leaf.startswith("mhc_phi") or leaf == "cond_v":
        return x / np.sqrt(shape[-2])
    if leaf in ("embedding", "probes", "query"):
        return x * 0.5
    if leaf in ("w1a", "w1b", "w2a", "w2b", "w3a", "w3b"):
        return x / np.sqrt(shape[-1])
    if leaf in ("d1", "d2", "d3", "gain"):
        return 1 + 0.2 * x
    if leaf == "mhc_b_res":
        return np.broadcast_to(2.0 * np.eye(shape[-1]), shape) + 0.5 * x
    if leaf.startswith("mhc_a"):
        return 0.3 + 0.1 * x
    if leaf.endswith("taps"):
        out = 0.3 * x
        out[..., 0, :] += 1
        return out
    if leaf == "d4":
        return 0.5 + 0.1 * x
    return 0.3 * x


def make_params(config, spec):
    rng = np.random.RandomState(spec["seed"])
    flat = {}
    for name, shape in sorted(shapes(architecture.SimpleAttentionNetwork(config)).items()):
        if any(name.startswith(k) for k in architecture.HEAD_KEYS) and not spec["heads"]:
            continue
        flat[name] = np.asarray(fill(name, shape, rng)).astype(spec["dtype"])
    if spec["heads"]:
        flat["router_head/calibration"] = np.asarray([0.85, 0.05, 0.55]).astype(spec["dtype"])
        flat["mtp_combine/kernel"] = rng.standard_normal((8, 4)).astype(spec["dtype"])
        flat["mtp_block/attn_gate"] = np.asarray(0.25).astype(spec["dtype"])
    return checkpoints.unflatten(flat)


def adapter_of(params, rank, rng):
    flat = names(params)
    lora = {}
    for name in sorted(flat):
        if name.endswith("/kernel") and "/layers/" in name and any(t in name for t in finetune.LORA_TARGETS):
            shape = flat[name].shape
            lora[name] = {"A": (rng.standard_normal((*shape[:-2], shape[-2], rank)) / rank).astype(np.float32),
                          "B": (rng.standard_normal((*shape[:-2], rank, shape[-1])) * 0.05).astype(np.float32)}
    return {"lora": lora, "scale": 2.0, "base": "needle3.safetensors", "rank": rank, "seed": 7}


def merged(params, adapter):
    lora = {tuple(k.split("/")): {m: jnp.asarray(v) for m, v in ab.items()} for k, ab in adapter["lora"].items()}
    out = finetune.merge_lora(params, lora, adapter["scale"])
    return {k: v for k, v in out.items() if k != architecture.ConfidenceHead.key}


def settle(path):
    """Sorts the metadata of a safetensors file, which the library writes in the order of its hash table."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header = {"__metadata__": dict(sorted(header.pop("__metadata__").items())), **header}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    path.write_bytes(data[:8] + text.ljust(size) + data[8 + size:])


def write_archive(name, params, config, tokenizer):
    info = export.write_export(params, config, OUT / f"{name}.cact", tokenizer=tokenizer, kv_window=architecture.effective_kv_window(config))
    print(f"{name}.cact: {info['bytes']} bytes, {info['tensors']} tensors", file=sys.stderr)


class Archive:
    """Parameters as the exporter's own reader gives them, back in the shapes of a checkpoint."""

    def __init__(self, path, config):
        _, tensors = export.read_export(path)
        self.left, c = iter(tensors), config
        take, orders, heads, sub = lambda: next(self.left), *architecture.engram_geometry(c)
        tr = lambda: take().T
        flat = {"embedding/embedding": take()}
        layers = []
        for _ in range(c.num_layers):
            one = {"ZCRMSNorm_0/scale": take()}
            sa = "self_attn/"
            for n in "qkv":
                one[f"{sa}{n}_proj/kernel"] = tr()
            if c.qkv_conv_taps:
                one.update({f"{sa}{n}_taps": take() for n in "qkv"})
            one.update({f"{sa}{n}_norm/scale": take() for n in "qk"})
            one.update({f"{sa}{n}_proj/kernel": tr() for n in ("gate", "out")})
            one["post_attn_norm/scale"], one["attn_gate"], one["pre_hada_norm/scale"] = take(), take()[0], take()
            for n in ("d1", "d2", "b2", "d3", "d4", "w1a", "w1b", "w2a", "w2b", "w3a", "w3b", "cond_v", "cond_u"):
                one[f"hadamard_mlp/{n}"] = take()
            layers.append(one)
        for key in layers[0]:
            flat[f"stack/layers/block/{key}"] = np.stack([l[key] for l in layers])
        for n in ("a_pre", "a_post", "a_res", "b_pre", "b_post", "b_res"):
            flat[f"stack/mhc_{n}"] = take()
        for n in ("pre", "post", "res"):
            flat[f"stack/mhc_phi_{n}"] = take().reshape(c.num_layers, -1, c.mhc_lanes * c.d_model).transpose(0, 2, 1)
        take(), take()  # permutations
        for s in range(len(c.engram_layers)):
            flat[f"engrams_{s}/embedding"] = take().reshape(len(orders) * heads, c.engram_slots, sub)
            flat[f"engrams_{s}/key_proj/kernel"], flat[f"engrams_{s}/value_proj/kernel"] = tr(), tr()
            flat[f"engrams_{s}/taps"] = take()
        flat["stack/final_norm/scale"] = take()
        rest = [t for t in self.left if not isinstance(t, (bytes, bytearray))]
        if rest:
            codes = rest.pop(0)
            for code in codes:
                head = next(h for h in architecture.HEADS if h.code == int(code))
                k = head.key
                probes, gain, query, bias, proj, pbias = (rest.pop(0) for _ in range(6))
                flat.update({f"{k}/probes": probes.reshape(*gain.shape, -1), f"{k}/gain": gain, f"{k}/query": query, f"{k}/row_bias": bias,
                             f"{k}/proj/kernel": proj.T})
                flat[f"{k}/proj/bias"] = pbias
                if head.code == 1:
                    del flat[f"{k}/proj/bias"]
                    flat[f"{k}/log_temp"], flat[f"{k}/bias"] = np.float32(0), np.float32(0)
                if head.code == 3:
                    rest.pop(0)
        self.params = checkpoints.unflatten(flat)


class Wide:
    """jax.numpy with float64 where the model says float32."""

    def __getattr__(self, name):
        return getattr(jnp, "float64" if name == "float32" else name)


def everything(model, tokens, quant, heads):
    """Logits of a batch and, from one walk over the hidden states, what the heads say."""
    out = {"logits": model(tokens, quant=quant)}
    if heads:
        cells, keep, rows = model._head_cells(tokens, quant)
        out["embedding"] = model.embedding_head(cells, keep, rows, quant=quant)[0]
        out["confidence"] = model.confidence_head(cells, keep, rows, quant=quant)
        out["router"] = model.router_head(cells, keep, rows, quant=quant)
    return out


class Runner:
    """The JAX model over one set of parameters. wide: in float64, and says of each sequence how near to a border of the int8 steps its activations
    came; quant: int8 activations; kv: int8 keys and values too; packed: the heads' matrices are quantized already."""

    margins = []

    def __init__(self, params, config, wide=False, quant=False, kv=0, packed=False, heads=False):
        fields = dict(config.__dict__, dtype="float64" if wide else "float32", remat=False)
        architecture.DTYPE_MAP["float64"] = jnp.float64
        model = architecture.SimpleAttentionNetwork(architecture.TransformerConfig(**fields))
        params = jax.tree.map(lambda a: jnp.asarray(np.asarray(a).astype(np.float64 if wide else np.float32)), params)
        self.run = jax.jit(lambda tokens: model.apply({"params": params}, tokens, method=lambda m, t: everything(m, t, quant, heads)))
        self.wide, self.kv, self.packed = wide, kv, packed

    def __call__(self, batch):
        """Output name -> array with one row a sequence."""
        kept = architecture.jnp, quantize.jnp, quantize.fake_quant, architecture.head_weight
        quantize.configure_deploy(act_bits=8, kv_bits=self.kv)
        Runner.margins.clear()
        if self.wide:
            architecture.jnp = quantize.jnp = Wide()
            quantize.fake_quant = lambda w, group_size=128, bits=4: self.watched(kept[2], w, group_size, bits)
        if self.packed:
            architecture.head_weight = lambda w, *_, **__: w
        try:
            out = {k: np.asarray(v) for k, v in self.run(jnp.asarray(batch, jnp.int32)).items()}
        finally:
            architecture.jnp, quantize.jnp, quantize.fake_quant, architecture.head_weight = kept
        jax.effects_barrier()
        return out

    @staticmethod
    def watched(inner, w, group_size, bits):
        """fake_quant that notes how near to a border its values come, in steps. Borders lie at halves."""
        step = jnp.max(jnp.abs(w), axis=-1, keepdims=True) / (2 ** (bits - 1) - 1)
        x = jnp.where(step > 0, w / jnp.where(step > 0, step, 1), 0)
        jax.debug.callback(Runner.margins.append, jnp.min(jnp.abs(x - jnp.floor(x) - 0.5), axis=tuple(range(1, w.ndim))))
        return inner(w, group_size, bits)


def near(a, b, what):
    worst = np.max(np.abs(a - b)) / np.max(np.abs(b))
    print(f"  {what}: float32 and float64 differ by {worst:.1e} of the greatest value", file=sys.stderr)
    if worst > 1e-5:
        sys.exit(f"{what}: float32 is {worst:.1e} away from float64")


def pick(runner, vocab, length, count, rng):
    """Sequences whose quantized activations keep clear of all borders."""
    out, tried = [], 0
    while len(out) < count:
        batch = rng.randint(4, vocab, (64, length))  # no common first token: its own activations would decide for all
        runner(batch)
        clear = np.min(np.stack(Runner.margins), axis=0)
        out += batch[clear > MARGIN].tolist()
        tried += len(batch)
    print(f"  {len(out)} sequences of {length} out of {tried}, {len(Runner.margins)} vectors each", file=sys.stderr)
    return out[:count]


def evaluate(name, params, config, archive, lengths, heads):
    """Logits and head outputs on the checkpoint and on the archive."""
    rng = np.random.RandomState(100 + ord(name[-1]))
    vocab = config.vocab_size
    meta = {"tokens": [2] + [int(t) for t in rng.randint(4, vocab, lengths["float"] - 1)]}
    tensors = {}

    def record(prefix, tokens, p, **kw):
        got, exact = Runner(p, config, heads=heads, **kw)([tokens]), Runner(p, config, wide=True, heads=heads, **kw)([tokens])
        for what, value in got.items():
            near(value, exact[what], f"{name} {prefix}.{what}")
            tensors[f"{prefix}.{what}"] = np.ascontiguousarray(np.atleast_1d(value[0]).astype(np.float32))

    record("checkpoint", meta["tokens"], params)
    record("archive", meta["tokens"], archive, packed=True)
    for mode, kv in (("w4a8", 0), ("w4a8kv8", 8)):
        picked = pick(Runner(archive, config, wide=True, quant=True, kv=kv, packed=True), vocab, lengths["w4a8"], 1, rng)
        meta[f"{mode}.tokens"] = picked[0]
        record(mode, picked[0], archive, quant=True, kv=kv, packed=True)
    meta = {k: json.dumps(v, separators=(",", ":")) for k, v in meta.items()}
    save_file(tensors, OUT / f"{name}-logits.safetensors", metadata=meta)
    settle(OUT / f"{name}-logits.safetensors")


def windowed(name, config, archive, tokens, window):
    """Logits of a KV cache of window positions, which must be more than the engrams look back on: the mask would cut them too."""
    fields = dict(config.__dict__, dtype="float32", remat=False)
    model = architecture.SimpleAttentionNetwork(architecture.TransformerConfig(**fields))
    params = jax.tree.map(lambda a: jnp.asarray(np.asarray(a).astype(np.float32)), archive)
    at = np.arange(len(tokens))
    mask = (at[:, None] >= at[None, :]) & (at[:, None] - at[None, :] < window)
    got = jax.jit(lambda t, m: model.apply({"params": params}, t, mask=m))(jnp.asarray([tokens], jnp.int32), jnp.asarray(mask)[None, None])
    save_file({"logits": np.asarray(got)[0]}, OUT / f"{name}-window.safetensors", metadata={"tokens": json.dumps(tokens, separators=(",", ":"))})


def make(letter, only_files):
    spec, name = MODELS[letter], f"needle3-{letter}"
    given = dict(spec["config"], dtype="bfloat16")
    config = architecture.TransformerConfig(**given) if spec["full"] else architecture.TransformerConfig.from_saved(given)
    params = make_params(config, spec)
    checkpoint = {"format_version": 2, "params": params, "config": dataclasses.asdict(config) if spec["full"] else given, "step": 1200, "run": {"name": name}}
    checkpoints.write_checkpoint(OUT / f"{name}.safetensors", checkpoint)
    settle(OUT / f"{name}.safetensors")
    tokenizer = SANTokenizer(str(OUT / ("needle3-dummy.model" if letter == "a" else "needle3-plain.model")))
    params = {k: v for k, v in params.items() if not k.startswith("mtp_")}
    write_archive(name, params, config, tokenizer)
    rng = np.random.RandomState(spec["seed"] + 50)
    if letter == "a":
        adapter = adapter_of(params, 3, rng)
        checkpoints.write_adapter(OUT / f"{name}-lora.safetensors", adapter)
        settle(OUT / f"{name}-lora.safetensors")
        write_archive(f"{name}-lora", merged(params, adapter), config, tokenizer)
        write_archive(f"{name}-layers3", *finetune.rung(params, config, 3), tokenizer)
    if letter == "b":
        checkpoints.write_checkpoint(OUT / f"{name}.pkl", checkpoint)
        adapter = adapter_of(params, 2, rng)
        checkpoints.write_adapter(OUT / f"{name}-lora.pkl", adapter)
        write_archive(f"{name}-lora", merged(params, adapter), config, tokenizer)
        write_archive(f"{name}-width32", architecture.width_slice(params, config, 32), architecture.width_config(config, 32), tokenizer)
    if letter == "c":
        write_archive(f"{name}-layers5", *finetune.rung(params, config, 5), tokenizer)
    if not only_files:
        lengths = {"a": {"float": 44, "w4a8": 7}, "b": {"float": 20, "w4a8": 8}, "c": {"float": 24, "w4a8": 4}}[letter]
        archive = Archive(OUT / f"{name}.cact", config).params
        if letter == "a":
            windowed(name, config, archive, [2] + np.random.RandomState(5).randint(4, config.vocab_size, 25).tolist(), 10)
        evaluate(name, params, config, archive, lengths, spec["heads"])


TEXTS = [
    "", " ", "Once upon a time", "  two  spaces ", "tab\tand\nnewline", "<|im_start|>user\nhi<|im_end|>", "a<tools>b</tools>c", "<tool", "<tool_call>{}</tool_call>",
    "<note>", "</think><think>", "caf\u00e9 na\u00efve \u4f60\u597d \U0001f600", "\u2581 is a space", "1234567890", "aaaaaaaaaaaaaaaa", "<s></s><pad>", "<0x41>",
    "e\u0301 \ufb01 \u2126", "The cat sat on the mat, didn't it?", "<context><schema></schema></context><extract>",
]


def tokenize():
    """What the exporter's reference tokenizer makes of texts, out of archives of both generations."""
    cases = {}
    for name in ("needle2-a-w4", "needle3-a", "needle3-b"):
        raw = (OUT / f"{name}.cact").read_bytes()
        words = 30 if name.startswith("needle2") else 49
        at = 4 * (words + 28) + export.REC_SIZE * (int.from_bytes(raw[4:8], "little") - 1)
        *_, offset, size, _, _ = export.struct.unpack_from(export._REC_FMT, raw, at)
        ref = export.RefTokenizer(export.parse_tokenizer_blob(raw[offset:offset + size]))
        cases[name] = [{"text": t, "ids": (ids := ref.encode(t)), "decoded": ref.decode(ids)} for t in TEXTS]
    lines = ["{"]
    for i, (name, rows) in enumerate(cases.items()):
        lines.append(f'"{name}": [')
        lines += [json.dumps(r, separators=(",", ":")) + ("," if r is not rows[-1] else "") for r in rows]
        lines.append("]" + ("," if i < len(cases) - 1 else ""))
    (OUT / "tokens.json").write_text("\n".join(lines + ["}"]) + "\n")


def groups():
    """SHA-256 of what the exporter writes at every group size."""
    out = {}
    for letter in "ab":
        spec, name = MODELS[letter], f"needle3-{letter}"
        config = architecture.TransformerConfig(**dict(spec["config"], dtype="bfloat16"))
        params = {k: v for k, v in checkpoints.read_checkpoint(OUT / f"{name}.safetensors")["params"].items() if not k.startswith("mtp_")}
        tokenizer = SANTokenizer(str(OUT / ("needle3-dummy.model" if letter == "a" else "needle3-plain.model")))
        path = OUT / "group.tmp"
        for group in (32, 64, 128, 256):
            export.write_export(params, config, path, tokenizer=tokenizer, group=group, kv_window=architecture.effective_kv_window(config))
            out[f"{name} {group}"] = hashlib.sha256(path.read_bytes()).hexdigest()
        path.unlink()
    (OUT / "groups.json").write_text(json.dumps(out, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true", help="write checkpoints and archives, run no model")
    parser.add_argument("models", nargs="*", default=sorted(MODELS))
    args = parser.parse_args()
    corpus = OUT.parent / "tokenizer" / "corpus.txt"
    train_tokenizer(OUT / "needle3-dummy.model", corpus, True)
    train_tokenizer(OUT / "needle3-plain.model", corpus, False)
    for letter in args.models:
        make(letter, args.files)
    groups()
    tokenize()


if __name__ == "__main__":
    main()
