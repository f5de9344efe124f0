"""Adds tiny-qwen35 to testdata/golden/runtime/tiny-logits.json, after make_logits.py: transformers 4.57.6 does not know Qwen3.5.

Runs with a Python that has the packages of requirements.txt and, before them, transformers 5.2.0 with huggingface_hub 1.x and its httpx. The text
model is built from the config's text_config; the tensors of the vision half and of multi-token prediction are left out.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

import common
import make_logits as ml

NAME = "tiny-qwen35"


def main():
    torch.set_num_threads(1)
    path = common.TESTDATA / "golden/runtime/tiny-logits.json"
    all = json.loads(path.read_text())
    with tempfile.TemporaryDirectory() as work:
        folder = ml.folder(NAME, Path(work))
        config = Qwen3_5TextConfig(**json.loads((folder / "config.json").read_text())["text_config"])
        model = Qwen3_5ForCausalLM._from_config(config, attn_implementation="eager").float().eval()
        weights = {k.replace("model.language_model.", "model."): v.float() for k, v in load_file(folder / "model.safetensors").items()
                   if "visual" not in k and not k.startswith("mtp.")}
        missing, unexpected = model.load_state_dict(weights, strict=False)
        assert missing == ["lm_head.weight"] and not unexpected  # tied
        text = ml.tokens(NAME, config.vocab_size)
        with torch.inference_mode():
            hf = model(torch.tensor([text])).logits[0].numpy()
        f32 = Path(work) / f"{NAME}.f32.gguf"
        common.convert(folder, f32, "--outtype", "f32")
        said = subprocess.run([common.tool("peer"), "logits", f32, ",".join(map(str, text))], env=common.environment(), check=True, stdout=subprocess.PIPE).stdout
    cpp = np.frombuffer(said, "<f4").reshape(hf.shape)
    ids = sorted(set(int(v) for v in np.linspace(0, hf.shape[1] - 1, 24)))
    largest = float(np.abs(hf[ml.PLACES]).max())
    print(f"{NAME}: largest logit {largest:.4g}, transformers and llama.cpp differ by {np.abs(hf - cpp)[ml.PLACES].max() / largest:.2g} of it")
    pick = lambda x: ml.short([[float(x[p, i]) for i in ids] for p in ml.PLACES])
    all[NAME] = {"tokens": text, "places": ml.PLACES, "ids": ids, "largest": largest, "transformers": pick(hf), "llama.cpp": pick(cpp)}
    lines = [f"{json.dumps(name)}: {json.dumps(all[name], separators=(',', ':'))}" for name in sorted(all)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
