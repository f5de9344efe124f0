"""Writes testdata/golden/runtime/tiny-logits.json: what transformers and llama.cpp compute for the tiny models, in float32.

The models are those of testdata/convert/models with every weight multiplied by 8, so that attention is not flat and the layers matter, and
kept in float32, so that no rounding comes between. The sliding window of tiny-gemma3 is 8, shorter than the text; tiny-qwen3 is not
tied, since transformers would tie the head that the folder holds and the converter not. transformers runs the folder with eager attention. llama.cpp (peer.cpp, float32 cache) runs what the real converter makes of it with --outtype f32.

VARIANTS are these models with other kinds of rotary embeddings, with positions past the original context, and other windows.

An entry has `model`, `config` (changes of config.json), `tokens`, `places` (positions in the text), `ids` (of the vocabulary), `transformers` and `llama.cpp` as rows of logits, one a
place, one number an id, and `largest`, the largest magnitude of all logits at these places in transformers.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import common
import weights

MODELS = ["tiny-gemma3", "tiny-llama-hf", "tiny-llama-tied", "tiny-llama3", "tiny-mistral", "tiny-mixtral", "tiny-qwen2", "tiny-qwen3", "tiny-qwen3moe"]
SETTINGS = {"tiny-gemma3": {"sliding_window": 8}, "tiny-qwen3": {"tie_word_embeddings": False}}
PAST = {"original_max_position_embeddings": 16}
# The same models with other settings, positions past the original context among them: model and changes of config.json.
VARIANTS = {
    "llama3 in Llama without head_dim": ("tiny-llama-hf", {"max_position_embeddings": 64, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, **PAST}}),
    "linear in Gemma 3": ("tiny-gemma3", {"sliding_window": 8, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    "a window of 5 in Gemma 3": ("tiny-gemma3", {"sliding_window": 5}),
    "yarn in Mistral": ("tiny-mistral", {"head_dim": 8, "max_position_embeddings": 64, "rope_scaling": {"rope_type": "yarn", "factor": 2.5, **PAST}}),
    "yarn in Mixtral": ("tiny-mixtral", {"head_dim": 16, "max_position_embeddings": 64, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, **PAST}}),
}
LENGTH = 40
PLACES = [0, 1, 5, 12, 20, 31, 39]
SCALE = np.float32(8)

# Runs inside the tools' environment.
PROBE = """
import json, sys
import torch
from transformers import AutoConfig, AutoModelForCausalLM
torch.set_num_threads(1)
folder, out = sys.argv[1:3]
tokens, places, rows = json.load(sys.stdin)
config = AutoConfig.from_pretrained(folder)
config.vocab_size = rows  # tiny-gemma3 has rows behind its vocabulary
model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager")
model.eval()
with torch.inference_mode():
    logits = model(torch.tensor([tokens])).logits[0]
logits[places].contiguous().numpy().astype("<f4").tofile(out)
"""


def folder(name, parent, changes):
    """The model folder with its weights scaled and widened, and its settings changed."""
    values, save = weights.values, weights.safetensors
    weights.values = lambda tensor, count: values(tensor, count) * SCALE
    weights.safetensors = lambda path, tensors: save(path, [(n, "F32", shape) for n, _, shape in tensors])
    try:
        out = weights.build(name, parent)
    finally:
        weights.values, weights.safetensors = values, save
    if changes:
        config = json.loads((out / "config.json").read_text())
        config.update(changes)
        (out / "config.json").write_text(json.dumps(config))
    return out


def tokens(name, vocab):
    """The first is BOS or its like, the others come from the model's name."""
    x = (weights.values(name, LENGTH).astype(np.float64) + 0.125) * 4
    out = [int(v * min(vocab, 500)) for v in x]
    out[0] = 1
    return out


def rows(data, vocab, ids):
    x = np.frombuffer(data, "<f4").reshape(-1, vocab)
    return x, [[float(v) for v in row[ids]] for row in x]


def golden(title, work):
    name, changes = VARIANTS.get(title, (title, SETTINGS.get(title, {})))
    model = folder(name, work / title.replace(" ", "_"), changes)
    desc = json.loads((weights.DESCRIPTIONS / name / "model.json").read_text())
    vocab = next(t[2][0] for s in desc["shards"] for t in s["tensors"] if t[0].endswith("embed_tokens.weight"))
    text = tokens(name, vocab)
    out = work / "logits.bin"
    subprocess.run([common.cache() / "venv/bin/python", "-c", PROBE, model, out], input=json.dumps([text, PLACES, vocab]).encode(),
                   env=common.environment(), check=True)
    # The converter cuts rows that have no token.
    f32 = work / f"{name}.f32.gguf"
    common.convert(model, f32, "--outtype", "f32")
    said = subprocess.run([common.tool("peer"), "logits", f32, ",".join(map(str, text))], env=common.environment(), check=True, stdout=subprocess.PIPE).stdout
    cut = len(said) // 4 // LENGTH
    ids = sorted(set(int(v) for v in np.linspace(0, cut - 1, 24)))
    hf, hf_rows = rows(out.read_bytes(), vocab, ids)
    cpp, cpp_rows = rows(said, cut, ids)
    cpp_rows = [cpp_rows[p] for p in PLACES]
    largest = float(np.abs(hf).max())
    apart = float(np.abs(hf[:, :cut] - cpp[PLACES]).max()) / largest
    print(f"{title}: largest logit {largest:.4g}, transformers and llama.cpp differ by {apart:.2g} of it", flush=True)
    return {"model": name, "config": changes, "tokens": text, "places": PLACES, "ids": ids, "largest": largest, "transformers": hf_rows, "llama.cpp": cpp_rows}


def short(x):
    """float32 in its shortest form."""
    return [[float(str(np.float32(v))) for v in row] for row in x]


def main():
    """With names as arguments only these are made again."""
    path = common.TESTDATA / "golden/runtime/tiny-logits.json"
    all = json.loads(path.read_text()) if sys.argv[1:] else {}
    with tempfile.TemporaryDirectory() as work:
        for name in sys.argv[1:] or [*MODELS, *VARIANTS]:
            all[name] = golden(name, Path(work))
            for key in ["transformers", "llama.cpp"]:
                all[name][key] = short(all[name][key])
            lines = [f"{json.dumps(name)}: {json.dumps(all[name], separators=(',', ':'))}" for name in sorted(all)]
            path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
