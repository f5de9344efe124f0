"""Asks the real llama-quantize which type it gives each tensor, over synthetic models of many shapes, and writes testdata/convert/types.json.

The models are GGUF files with all the tensors of an architecture but only two rows in each; --dry-run prints the decision and computes
nothing. A decision is kept as one run-length string per tensor role: "2*q6_K 10*q4_K" are the layers in order.
"""

import json
import re
import sys
from itertools import groupby
from pathlib import Path

import numpy as np

import common

sys.path.insert(0, str(common.sources() / "gguf-py"))
import gguf  # noqa: E402

FTYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M",
          "Q5_K_S", "Q5_K_M", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "IQ4_NL",
          "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4_MOE", "Q1_0", "Q2_0"]
SHORT = ["Q2_K", "Q3_K_M", "Q3_K_L", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ2_M", "IQ3_M", "IQ4_XS", "MXFP4_MOE"]

ATTENTION = ["attn_q", "attn_k", "attn_v", "attn_output"]
DENSE = ["ffn_gate", "ffn_up", "ffn_down"]
EXPERTS = ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"]
SHARED = ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"]


class Model:
    """layers: role names, each either for all layers or (role, predicate over the layer number); widths: row length by role."""

    def __init__(self, name, arch, layers, heads, kv, roles, width=256, widths=None, experts=0, tied=False, extra=None, unblocked=("token_embd", "output")):
        self.name, self.arch, self.layers, self.experts, self.tied = name, arch, layers, experts, tied
        self.hparams = {"block_count": layers, "context_length": 128, "embedding_length": 256, "feed_forward_length": 256,
                        "attention.head_count": heads, "attention.head_count_kv": kv, "attention.layer_norm_rms_epsilon": 1e-5, **(extra or {})}
        if experts:
            self.hparams |= {"expert_count": experts, "expert_used_count": min(2, experts)}
        self.roles = [(r, lambda i: True) if isinstance(r, str) else r for r in roles]
        self.widths, self.width = widths or {}, width
        self.globals = [u for u in unblocked if not (tied and u == "output")]

    def shape(self, role):
        w = self.widths.get(role, self.width)
        return [self.experts, 2, w] if role.endswith("_exps") else [2, w]

    def write(self, path):
        w = gguf.GGUFWriter(path=None, arch=self.arch)
        w.add_string("general.name", self.name)
        w.add_file_type(1)
        for key, value in self.hparams.items():
            add = w.add_float32 if isinstance(value, float) else w.add_bool if isinstance(value, bool) else w.add_array if isinstance(value, list) else w.add_uint32
            add(f"{self.arch}.{key}", value)
        w.add_string("tokenizer.ggml.model", "none")
        w.add_tensor("output_norm.weight", np.zeros(self.width, np.float32))
        for g in self.globals:
            w.add_tensor(g + ".weight", np.zeros(self.shape(g), np.float16))
        for i in range(self.layers):
            w.add_tensor(f"blk.{i}.attn_norm.weight", np.zeros(self.width, np.float32))
            for role, there in self.roles:
                if there(i):
                    w.add_tensor(f"blk.{i}.{role}.weight", np.zeros(self.shape(role), np.float16))
        w.write_header_to_file(path=path)
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()

    def describe(self):
        """What a test needs to build the same list of tensors: per role its row width and the layers that have it."""
        roles = {}
        for role, there in self.roles:
            have = [i for i in range(self.layers) if there(i)]
            roles[role] = {"width": self.shape(role)[-1]} | ({} if len(have) == self.layers else {"layers": have})
        return {"model": self.name, "arch": self.arch, "layers": self.layers, "hparams": self.hparams, "experts": self.experts,
                "globals": {g: self.shape(g)[-1] for g in self.globals}, "roles": roles}


def linear(i):
    return i % 4 != 3


QWEN35 = [("attn_qkv", linear), ("attn_gate", linear), ("ssm_alpha", linear), ("ssm_beta", linear), ("ssm_out", linear), ("ssm_conv1d", linear),
          *[(a, lambda i: not linear(i)) for a in ATTENTION], *DENSE]
QWEN35_KV = {"rope.dimension_sections": [11, 11, 10, 0], "ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 4, "ssm.time_step_rank": 4,
             "ssm.inner_size": 64, "full_attention_interval": 4}
BAILING_KV = {"expert_feed_forward_length": 256, "expert_shared_feed_forward_length": 256, "expert_shared_count": 1, "expert_gating_func": 2,
              "leading_dense_block_count": 1, "expert_weights_scale": 2.5, "expert_weights_norm": True}

MODELS = [
    Model("dense", "llama", 12, 8, 8, ATTENTION + DENSE),
    Model("dense, grouped heads", "llama", 12, 8, 2, ATTENTION + DENSE),
    Model("dense, tied", "llama", 12, 8, 4, ATTENTION + DENSE, tied=True),
    Model("one layer", "llama", 1, 8, 4, ATTENTION + DENSE),
    Model("seven layers", "llama", 7, 8, 4, ATTENTION + DENSE),
    Model("33 layers", "llama", 33, 8, 4, ATTENTION + DENSE),
    Model("80 layers", "llama", 80, 64, 8, ATTENTION + DENSE),
    Model("80 layers, no groups", "llama", 80, 8, 8, ATTENTION + DENSE),
    Model("qwen2, 80 layers", "qwen2", 80, 64, 8, ATTENTION + DENSE),
    Model("8 experts", "llama", 32, 8, 2, ATTENTION + EXPERTS + ["ffn_gate_inp"], experts=8),
    Model("8 experts, tied, no groups", "llama", 16, 8, 8, ATTENTION + EXPERTS + ["ffn_gate_inp"], experts=8, tied=True),
    Model("4 experts", "llama", 16, 8, 8, ATTENTION + EXPERTS + ["ffn_gate_inp"], experts=4),
    Model("2 experts", "llama", 16, 8, 8, ATTENTION + EXPERTS + ["ffn_gate_inp"], experts=2),
    Model("qwen3moe", "qwen3moe", 24, 32, 4, ATTENTION + EXPERTS + ["ffn_gate_inp"], experts=128, extra={"expert_feed_forward_length": 256}),
    Model("qwen3", "qwen3", 28, 16, 8, ATTENTION + DENSE, tied=True),
    Model("gemma3", "gemma3", 26, 4, 1, ATTENTION + DENSE, tied=True, extra={"attention.sliding_window": 512}),
    Model("bailingmoe2", "bailingmoe2", 20, 16, 4, ["attn_qkv", "attn_output", *[(d, lambda i: i == 0) for d in DENSE],
          *[(e, lambda i: i > 0) for e in EXPERTS + SHARED + ["ffn_gate_inp"]]], experts=32, extra=BAILING_KV),
    Model("qwen35", "qwen35", 16, 8, 2, QWEN35, extra=QWEN35_KV),
    Model("rows of 64", "llama", 12, 8, 4, ATTENTION + DENSE, width=64),
    Model("rows of 128", "llama", 12, 8, 4, ATTENTION + DENSE, width=128),
    Model("rows of 96", "llama", 12, 8, 2, ATTENTION + DENSE, width=96),
    Model("rows of 40", "llama", 12, 8, 2, ATTENTION + DENSE, width=40),
    Model("down rows of 864", "llama", 12, 8, 4, ATTENTION + DENSE, widths={"ffn_down": 864}),
    Model("head rows of 288, tied", "llama", 12, 8, 4, ATTENTION + DENSE, widths={"token_embd": 288}, tied=True),
]

# Options with the models they are tried on; "im" stands for an importance matrix.
OPTIONS = [
    (["im"], ["dense", "dense, grouped heads", "8 experts", "4 experts", "down rows of 864"], FTYPES),
    (["--pure"], ["dense", "8 experts", "down rows of 864", "rows of 40"], FTYPES),
    (["--leave-output-tensor"], ["dense", "dense, tied"], SHORT),
    (["--output-tensor-type", "q5_K", "--token-embedding-type", "f16"], ["dense", "dense, tied", "rows of 96"], SHORT + ["F16"]),
    (["--tensor-type", "attn_v=q8_0", "--tensor-type", "blk.(1|3).ffn_down=q2_K"], ["dense", "8 experts", "rows of 96"], SHORT + ["F16", "Q8_0"]),
    (["--tensor-type", "ffn_down.*exps=iq4_nl", "--pure"], ["8 experts"], SHORT),
    (["--tensor-type", "OUTPUT=q3_K", "--tensor-type", "embd=q3_K"], ["dense", "dense, tied"], SHORT),
]

LINE = re.compile(r"^\[ *\d+/ *\d+\] (\S+) +- \[.*?\], type = +(\w+), size = +\S+ MiB(?: -> +\S+ MiB \((\w+)\))?")


def decide(path, ftype, options, matrix):
    args = [x for o in options for x in (["--imatrix", matrix] if o == "im" else [o])]
    try:
        text = common.run([common.tool("llama-quantize"), "--dry-run", *args, path, ftype])
    except RuntimeError as e:
        said = re.search(r"failed to quantize: (.*)", str(e))
        return {"error": said.group(1) if said else "exit code"}
    names, types = {}, {}
    for line in text.splitlines():
        m = LINE.match(line)
        if not m or m.group(1).endswith("_norm.weight"):
            continue
        role = re.sub(r"^blk\.\d+\.", "", m.group(1)).removesuffix(".weight")
        types.setdefault(role, []).append(m.group(3) or m.group(2))
        names[m.group(1)] = None
    if not names:
        raise RuntimeError(f"{path}: no tensor lines in the output of llama-quantize\n{text[-2000:]}")
    return {role: " ".join(f"{len(list(g))}*{t}" for t, g in groupby(ts)) for role, ts in types.items()}


def matrix(path):
    """The smallest importance matrix that counts as one."""
    w = gguf.GGUFWriter(path=None, arch="imatrix")
    w.kv_data[0].clear()
    w.add_string("general.type", "imatrix")
    w.add_array("imatrix.datasets", ["none"])
    w.add_uint32("imatrix.chunk_count", 1)
    w.add_uint32("imatrix.chunk_size", 16)
    w.add_tensor("blk.0.attn_q.weight.in_sum2", np.ones((1, 256), np.float32))
    w.add_tensor("blk.0.attn_q.weight.counts", np.ones((1, 1), np.float32))
    w.write_header_to_file(path=path)
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    folder = common.cache() / "types"
    folder.mkdir(parents=True, exist_ok=True)
    matrix(folder / "matrix.gguf")
    docs = []
    for model in MODELS:
        path = folder / (re.sub(r"\W+", "-", model.name) + ".gguf")
        model.write(path)
        runs = [([], FTYPES)] + [(o, fts) for o, names, fts in OPTIONS if model.name in names]
        results = []
        for options, ftypes in runs:
            for ftype in ftypes:
                results.append({"ftype": ftype, "options": options, "types": decide(path, ftype, options, folder / "matrix.gguf")})
        docs.append((model.describe(), results))
        print(model.name, len(results), flush=True)
    line = lambda v: json.dumps(v, separators=(",", ":"))
    text = ",\n".join(line(d)[:-1] + ',"results":[\n ' + ",\n ".join(map(line, r)) + "\n]}" for d, r in docs)
    target = common.GOLDENS / "types.json"
    target.write_text(f"[\n{text}\n]\n")
    json.loads(target.read_text())
    print(target.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
