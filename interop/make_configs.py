"""Writes testdata/golden/runtime/configs.json: what transformers and llama.cpp compute for tiny models with unusual settings, in float32.

The models are those of make_logits.py: kinds of scaled rotary embeddings on both sides of the original context, windows shorter than the text, layers of
two kinds, and what else a config may say. Large
vocabularies are cut to their first 512 rows for transformers, and only the logits of these are kept.

An entry is like one of make_logits.py; `cut` is the number of rows that are left where rows were cut. `llama.cpp` is missing where GGUF cannot say what the
config does: transformers is the measure then. Llama's longrope is in files for llama.cpp as tensors and keys, which are added to what the converter writes.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import common
import make_logits
import weights

CUT = 512
PLACES = [0, 5, 20, 39]
IDS = 12
PAST = {"original_max_position_embeddings": 16}
SHORT = {"max_position_embeddings": 64}


def scaling(kind, **params):
    return {**SHORT, "rope_scaling": {"rope_type": kind, **params}}


def longrope(pairs, original, **params):
    long, short = [1.0 + 0.25 * i * i for i in range(pairs)], [1.0 + 0.0625 * i for i in range(pairs)]
    return {"original_max_position_embeddings": original, **scaling("longrope", long_factor=long, short_factor=short, **params)}


# Values of a head, and whether the converter writes factors of llama3 scaling.
MODELS = {"tiny-llama-hf": (8, True), "tiny-mistral": (8, True), "tiny-mixtral": (16, True), "tiny-qwen2": (8, False), "tiny-qwen3": (16, False),
          "tiny-qwen3moe": (16, False), "tiny-gemma3": (16, False)}
BASE = {"tiny-gemma3": {"sliding_window": 8}, "tiny-qwen3": {"tie_word_embeddings": False, "rope_scaling": None}, "tiny-mistral": {"head_dim": 8},
        "tiny-mixtral": {"head_dim": 16}}
WINDOW = {"use_sliding_window": True, "sliding_window": 5}


def variants():
    """Title, model, changes of its config, and whether GGUF can say it."""
    for name, (dim, factors) in MODELS.items():
        pairs = dim // 2
        yield "linear", name, scaling("linear", factor=3.0), True
        yield "yarn", name, scaling("yarn", factor=4.0, **PAST), True
        yield "yarn with an attention factor", name, scaling("yarn", factor=4.0, attention_factor=0.8, beta_fast=20.0, beta_slow=2.0, **PAST), False
        yield "yarn with a quotient", name, scaling("yarn", factor=4.0, mscale=1.0, mscale_all_dim=0.5, **PAST), False
        yield "yarn between pairs", name, scaling("yarn", factor=4.0, truncate=False, beta_fast=4.0, **PAST), False
        yield "llama3", name, scaling("llama3", factor=8.0, high_freq_factor=4.0, low_freq_factor=1.0, **PAST), factors
        yield "longrope beyond the original context", name, longrope(pairs, 16), name == "tiny-llama-hf"
        yield "longrope within the original context", name, longrope(pairs, 48), False
        yield "dynamic beyond the context", name, {"max_position_embeddings": 16, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, False
    yield "longrope with a factor", "tiny-llama-hf", scaling("longrope", factor=4.0, long_factor=[2.0] * 4, short_factor=[1.0, 1.25, 1.5, 3.0]), False
    yield "longrope with an attention factor", "tiny-qwen2", longrope(4, 16, attention_factor=1.25), False
    yield "a window", "tiny-mistral", {"sliding_window": 5, "rope_scaling": None}, False
    yield "a window", "tiny-mixtral", {"sliding_window": 7}, False
    yield "a window behind the first layer", "tiny-qwen2", {**WINDOW, "max_window_layers": 1}, False
    yield "a window in the first layer", "tiny-qwen3", {**WINDOW, "layer_types": ["sliding_attention", "full_attention"]}, False
    yield "a window that is not used", "tiny-qwen3", {"use_sliding_window": False, "sliding_window": 5}, True
    yield "a window", "tiny-qwen3moe", WINDOW, False
    yield "weights that are not normalized", "tiny-qwen3moe", {"norm_topk_prob": False}, False
    yield "weights that are normalized", "tiny-qwen3moe", {"norm_topk_prob": True}, True
    yield "all experts", "tiny-mixtral", {"num_experts_per_tok": 4, "num_local_experts": 4}, True
    yield "another scale of queries", "tiny-gemma3", {"query_pre_attn_scalar": 64}, False
    yield "layers by list", "tiny-gemma3", {"layer_types": ["full_attention", "sliding_attention"] * 3 + ["sliding_attention"]}, False
    yield "a pattern of three", "tiny-gemma3", {"sliding_window_pattern": 3}, False
    yield "a window of one", "tiny-gemma3", {"sliding_window": 1}, True
    yield "a capped head", "tiny-gemma3", {"final_logit_softcapping": 30.0}, True
    yield "other bases", "tiny-gemma3", {"rope_theta": 500.0, "rope_local_base_freq": 50.0}, True
    yield "another base and epsilon", "tiny-llama-hf", {"rope_theta": 777.0, "rms_norm_eps": 1e-2}, True


# Runs inside the tools' environment, over many folders.
PROBE = """
import json, sys
import torch
from transformers import AutoConfig, AutoModelForCausalLM
torch.set_num_threads(1)
for folder, tokens, places, rows in json.load(sys.stdin):
    config = AutoConfig.from_pretrained(folder)
    config.vocab_size = rows
    model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    with torch.inference_mode():
        logits = model(torch.tensor([tokens])).logits[0]
    logits[places].contiguous().numpy().astype("<f4").tofile(folder + "/logits.bin")
"""

# Adds the factors of longrope to a file of the real converter: input, output, long and short factors, factor of sines, original context.
ADD = """
import json, sys
sys.path.insert(0, sys.argv[1] + "/gguf-py")
import gguf, numpy as np
source, target, long, short, attn, original = json.load(sys.stdin)
r = gguf.GGUFReader(source)
arch = r.get_field("general.architecture").contents()
w = gguf.GGUFWriter(target, arch)
for f in r.fields.values():
    if not f.name.startswith("GGUF.") and f.name != "general.architecture":
        w.add_key_value(f.name, f.contents(), f.types[0], f.types[-1] if f.types[0] == gguf.GGUFValueType.ARRAY else None)
w.add_rope_scaling_orig_ctx_len(original)
w.add_rope_scaling_attn_factors(attn)
for t in r.tensors:
    w.add_tensor(t.name, np.array(t.data))
w.add_tensor("rope_factors_long.weight", np.array(long, np.float32))
w.add_tensor("rope_factors_short.weight", np.array(short, np.float32))
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
"""


def folder(title, name, changes, work, cut):
    """The model's folder, whole or with cut rows of a large vocabulary and no tokenizer, and whether there was something to cut."""
    save, found = weights.safetensors, []

    def fewer(path, tensors):
        for i, (tensor, dtype, shape) in enumerate(tensors):
            if shape[0] > 100000:
                tensors[i] = (tensor, dtype, [cut, *shape[1:]])
                found.append(tensor)
        return save(path, tensors)

    if cut:
        weights.safetensors = fewer
    try:
        out = make_logits.folder(name, work / f"{title.replace(' ', '_')}-{cut}", {**BASE.get(name, {}), **changes})
    finally:
        weights.safetensors = save
    if found:
        config = json.loads((out / "config.json").read_text())
        (out / "config.json").write_text(json.dumps({**config, "vocab_size": cut}))
    return out, bool(found)


def added(path, work, config):
    s = config["rope_scaling"]
    original = config["original_max_position_embeddings"]
    factor = config["max_position_embeddings"] / original
    attn = s.get("attention_factor", float(np.sqrt(1 + np.log(factor) / np.log(original))))
    out = work / "longrope.gguf"
    subprocess.run([common.cache() / "venv/bin/python", "-c", ADD, common.sources()], env=common.environment(), check=True,
                   input=json.dumps([str(path), str(out), s["long_factor"], s["short_factor"], attn, original]).encode())
    return out


def llama(model, tokens, work, config):
    f32 = work / "f32.gguf"
    common.convert(model, f32, "--outtype", "f32")
    if (config.get("rope_scaling") or {}).get("rope_type") == "longrope":
        f32 = added(f32, work, config)
    said = subprocess.run([common.tool("peer"), "logits", f32, ",".join(map(str, tokens))], env=common.environment(), check=True, stdout=subprocess.PIPE).stdout
    return np.frombuffer(said, "<f4").reshape(len(tokens), -1)


def main():
    """With a word as argument only variants whose titles have it are made again."""
    path = common.TESTDATA / "golden/runtime/configs.json"
    all = json.loads(path.read_text()) if sys.argv[1:] else {}
    with tempfile.TemporaryDirectory() as work:
        work, jobs, made = Path(work), [], []
        for what, name, changes, can in variants():
            title = f"{what} in {name}"
            if sys.argv[1:] and sys.argv[1] not in title:
                continue
            model, was_cut = folder(title, name, changes, work, CUT)
            cut = CUT if was_cut else 0
            desc = json.loads((weights.DESCRIPTIONS / name / "model.json").read_text())
            rows = cut or next(t[2][0] for s in desc["shards"] for t in s["tensors"] if t[0].endswith("embed_tokens.weight"))
            tokens = make_logits.tokens(name, rows)
            jobs.append([str(model), tokens, PLACES, rows])
            made.append((title, name, {**BASE.get(name, {}), **changes}, can, model, cut, rows, tokens))
        subprocess.run([common.cache() / "venv/bin/python", "-c", PROBE], input=json.dumps(jobs).encode(), env=common.environment(), check=True)
        for title, name, changes, can, model, cut, rows, tokens in made:
            ids = sorted(set(int(v) for v in np.linspace(0, min(rows, CUT) - 1, IDS)))
            hf = np.fromfile(model / "logits.bin", "<f4").reshape(len(PLACES), rows)
            largest = float(np.abs(hf).max())
            entry = {"model": name, "config": changes, "cut": cut, "tokens": tokens, "places": PLACES, "ids": ids, "largest": largest,
                     "transformers": make_logits.short(hf[:, ids])}
            if can:
                cpp = llama(folder(title, name, changes, work, 0)[0], tokens, work, changes)[PLACES]
                apart = np.abs(hf[:, ids] - cpp[:, ids]).max() / largest
                print(f"{title}: transformers and llama.cpp differ by {apart:.2g} of the largest logit", flush=True)
                entry["llama.cpp"] = make_logits.short(cpp[:, ids])
            all[title] = entry
        lines = [f"{json.dumps(t)}: {json.dumps(all[t], separators=(',', ':'))}" for t in sorted(all)]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
