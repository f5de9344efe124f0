"""Writes testdata/golden/runtime/{gemma2,qwen2moe}.gguf and their logits: random models of transformers, in float32.

For architectures that are run but not converted, so the GGUF files are written here with gguf-py. gemma2 has a sliding window of 8 and both
softcaps, qwen2moe a shared expert and weights that are not normalized. NAME.json holds `tokens` and the `logits` after each of them.
"""

import json
import subprocess

import common

# Runs inside the tools' environment.
PROBE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1] + "/gguf-py")
import gguf, numpy as np, torch
from transformers import Gemma2Config, Gemma2ForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM

out = Path(sys.argv[2])
torch.manual_seed(1)
torch.set_num_threads(1)
tokens = [1] + [(7 + i * i * 5) % 64 for i in range(29)]
common = dict(vocab_size=64, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, rope_theta=10000.0,
              attn_implementation="eager")
keys = {"context_length": 64, "embedding_length": 32, "attention.head_count": 4, "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-6}
attention = {f"self_attn.{x}_proj": f"attn_{y}" for x, y in [("q", "q"), ("k", "k"), ("v", "v"), ("o", "output")]}


def save(name, model, keys, tensors):
    model.eval()
    with torch.no_grad():
        for _, p in model.named_parameters():
            p.copy_(((torch.rand_like(p) - 0.5) * 1.2).half().float())
        logits = model(torch.tensor([tokens])).logits[0]
    w = gguf.GGUFWriter(out / f"{name}.gguf", name)
    for key, v in keys.items():
        (w.add_float32 if isinstance(v, float) else w.add_uint32)(f"{name}.{key}", v)
    for key, t in tensors(model.state_dict()).items():
        t = t.detach().numpy()
        w.add_tensor(key, np.ascontiguousarray(t.astype(np.float16 if t.ndim > 1 and "inp" not in key else np.float32)))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    rows = [[float(str(np.float32(v))) for v in row] for row in logits.numpy()]
    (out / f"{name}.json").write_text(json.dumps({"tokens": tokens, "logits": rows}, separators=(",", ":")) + "\\n")


def gemma2(sd):
    names = {**attention, "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
             "post_feedforward_layernorm": "post_ffw_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    ts = {"token_embd.weight": sd["model.embed_tokens.weight"], "output_norm.weight": sd["model.norm.weight"] + 1}
    for i in range(4):
        for a, b in names.items():
            ts[f"blk.{i}.{b}.weight"] = sd[f"model.layers.{i}.{a}.weight"] + (1 if b.endswith("norm") else 0)
    return ts


def qwen2moe(sd):
    names = {**attention, "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp"}
    names |= {f"mlp.shared_expert.{x}_proj": f"ffn_{x}_shexp" for x in ["gate", "up", "down"]}
    ts = {"token_embd.weight": sd["model.embed_tokens.weight"], "output_norm.weight": sd["model.norm.weight"], "output.weight": sd["lm_head.weight"]}
    for i in range(3):
        p = f"model.layers.{i}."
        for a, b in names.items():
            ts[f"blk.{i}.{b}.weight"] = sd[p + a + ".weight"]
        ts[f"blk.{i}.ffn_gate_inp_shexp.weight"] = sd[p + "mlp.shared_expert_gate.weight"].reshape(-1)
        for x in "qkv":
            ts[f"blk.{i}.attn_{x}.bias"] = sd[p + f"self_attn.{x}_proj.bias"]
        for x in ["gate", "up", "down"]:
            ts[f"blk.{i}.ffn_{x}_exps.weight"] = torch.stack([sd[p + f"mlp.experts.{e}.{x}_proj.weight"] for e in range(6)])
    return ts


config = Gemma2Config(**common, intermediate_size=48, num_hidden_layers=4, head_dim=8, sliding_window=8, query_pre_attn_scalar=8)
save("gemma2", Gemma2ForCausalLM(config), {**keys, "block_count": 4, "feed_forward_length": 48, "attention.key_length": 8, "attention.value_length": 8,
     "attention.sliding_window": 8, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}, gemma2)
config = Qwen2MoeConfig(**common, intermediate_size=48, num_hidden_layers=3, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
                        shared_expert_intermediate_size=40, norm_topk_prob=False, tie_word_embeddings=False)
save("qwen2moe", Qwen2MoeForCausalLM(config), {**keys, "block_count": 3, "feed_forward_length": 48, "expert_count": 6, "expert_used_count": 2,
     "expert_feed_forward_length": 24, "expert_shared_feed_forward_length": 40}, qwen2moe)
"""

if __name__ == "__main__":
    subprocess.run([common.cache() / "venv/bin/python", "-c", PROBE, common.sources(), common.TESTDATA / "golden/runtime"], env=common.environment(), check=True)
