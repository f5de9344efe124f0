"""Writes the descriptions of the tiny models (testdata/convert/models): one per architecture, each with corners of its own.

The weights are not written here: weights.py makes them out of a description's tensor list. What each model is there to catch stands
beside it below.
"""

import json
import shutil

import common

OUT = common.GOLDENS / "models"
SPM = {"tokenizer.model": "tokenizers/stories.model"}
LLAMA3 = {"tokenizer.json": "tokenizers/llama-3.json.gz"}
QWEN = {"tokenizer.json": "tokenizers/qwen3.json.gz"}

LLAMA_TOKENS = {
    "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
    "add_bos_token": True, "add_eos_token": False, "legacy": True, "clean_up_tokenization_spaces": False,
}
QWEN_TOKENS = {
    "add_bos_token": False, "add_prefix_space": False, "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
    "unk_token": None, "tokenizer_class": "Qwen2Tokenizer", "model_max_length": 131072,
    "chat_template": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
}


def layer(i, prefix="model."):
    return f"{prefix}layers.{i}."


def attention(p, hidden, heads, kv, head_dim, dtype, bias="", norms=False):
    """The four projections; bias names those that have one, out of "qkvo"."""
    rows = {"q": heads * head_dim, "k": kv * head_dim, "v": kv * head_dim, "o": hidden}
    for x in "qkvo":
        yield [f"{p}self_attn.{x}_proj.weight", dtype, [rows[x], heads * head_dim if x == "o" else hidden]]
        if x in bias:
            yield [f"{p}self_attn.{x}_proj.bias", dtype, [rows[x]]]
    if norms:
        for x in "qk":
            yield [f"{p}self_attn.{x}_norm.weight", dtype, [head_dim]]


def mlp(p, hidden, inter, dtype, names=("gate_proj", "up_proj", "down_proj")):
    gate, up, down = names
    yield [f"{p}{gate}.weight", dtype, [inter, hidden]]
    yield [f"{p}{up}.weight", dtype, [inter, hidden]]
    yield [f"{p}{down}.weight", dtype, [hidden, inter]]


def norms(p, hidden, dtype, names=("input_layernorm", "post_attention_layernorm")):
    for n in names:
        yield [f"{p}{n}.weight", dtype, [hidden]]


def ends(vocab, hidden, dtype, head, prefix="model."):
    yield [f"{prefix}embed_tokens.weight", dtype, [vocab, hidden]]
    yield [f"{prefix}norm.weight", dtype, [hidden]]
    if head:
        yield ["lm_head.weight", dtype, [vocab, hidden]]


def write(name, config, tensors, copy, files, shards=1, index=False):
    folder = OUT / name
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for file, content in {"config.json": config, **files}.items():
        text = content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        (folder / file).write_text(text, encoding="utf-8")
    tensors = sorted(tensors, key=lambda t: t[0])
    step = -(-len(tensors) // shards)
    cut = [tensors[i : i + step] for i in range(0, len(tensors), step)]
    parts = []
    for i, some in enumerate(cut):
        file = "model.safetensors" if shards == 1 else f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        lines = ",\n   ".join(json.dumps(t, separators=(",", ":")) for t in some)
        parts.append(f'  {{"file": "{file}", "tensors": [\n   {lines}\n  ]}}')
    text = '{\n "copy": %s,\n "index": %s,\n "shards": [\n%s\n ]\n}\n' % (json.dumps(copy), json.dumps(index), ",\n".join(parts))
    (folder / "model.json").write_text(text)


def tiny_llama3():
    """llama3 rope scaling (rope_freqs.weight), head_dim that is not hidden/heads, an untied head, rows of 72 that no block type fits."""
    h, heads, kv, hd, inter, vocab = 32, 4, 2, 16, 72, 128256
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": h, "intermediate_size": inter, "num_hidden_layers": 2,
        "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": hd, "vocab_size": vocab, "max_position_embeddings": 131072,
        "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "attention_bias": False, "mlp_bias": False,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }
    t = [*ends(vocab, h, "BF16", True)]
    for i in range(2):
        t += [*attention(layer(i), h, heads, kv, hd, "BF16"), *mlp(layer(i) + "mlp.", h, inter, "BF16"), *norms(layer(i), h, "BF16")]
    tokens = {
        "bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "clean_up_tokenization_spaces": True,
        "model_input_names": ["input_ids", "attention_mask"], "model_max_length": 131072, "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}",
    }
    generation = {"bos_token_id": 128000, "do_sample": True, "eos_token_id": [128001, 128008, 128009], "temperature": 0.6, "top_p": 0.9}
    write("tiny-llama3", config, t, LLAMA3, {"tokenizer_config.json": tokens, "generation_config.json": generation})


def tiny_llama_tied():
    """Twelve layers (layers.10 sorts before layers.2), two shards cut inside a layer, no head, biases, tensors that are left out, token holes."""
    h, heads, kv, inter, vocab, n = 32, 4, 2, 64, 520, 12
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": h, "intermediate_size": inter, "num_hidden_layers": n,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab, "max_position_embeddings": 2048, "hidden_act": "silu",
        "rms_norm_eps": 1e-06, "attention_bias": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }
    t = [*ends(vocab, h, "BF16", False)]
    for i in range(n):
        t += [*attention(layer(i), h, heads, kv, 8, "BF16", "qkvo"), *mlp(layer(i) + "mlp.", h, inter, "BF16"), *norms(layer(i), h, "BF16")]
        t.append([layer(i) + "self_attn.rotary_emb.inv_freq", "F32", [4]])
    tokens = dict(LLAMA_TOKENS, add_prefix_space=True, added_tokens_decoder={
        "1": {"content": "<s>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True},
        "2": {"content": "</s>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True},
        "513": {"content": "<|turn|>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": False},
        "514": {"content": "▁▁tool", "lstrip": False, "normalized": True, "rstrip": False, "single_word": False, "special": False},
        "600": {"content": "<out-of-range>", "lstrip": False, "normalized": True, "rstrip": False, "single_word": False, "special": True},
    })
    files = {"tokenizer_config.json": tokens, "added_tokens.json": {"<extra_0>": 512, "<extra_far>": 700}}
    write("tiny-llama-tied", config, t, SPM, files, shards=2, index=True)


def tiny_mistral():
    """float16 all over, linear rope scaling, a model card with front matter, sampling keys, a list of end tokens, rows of 100."""
    h, heads, kv, inter, vocab, n = 64, 8, 2, 100, 512, 3
    config = {
        "_name_or_path": "acme-labs/Tiny-Mistral-300K-Instruct-v0.2",
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": h, "intermediate_size": inter, "num_hidden_layers": n,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab, "max_position_embeddings": 4096, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 2.0}, "sliding_window": 128,
        "bos_token_id": 1, "eos_token_id": [2, 5], "tie_word_embeddings": False, "torch_dtype": "float16",
    }
    t = [*ends(vocab, h, "F16", True)]
    for i in range(n):
        t += [*attention(layer(i), h, heads, kv, 8, "F16"), *mlp(layer(i) + "mlp.", h, inter, "F16"), *norms(layer(i), h, "F16")]
    card = (
        "---\nlicense: apache-2.0\nlanguage:\n- en\n- no\n- fr\ntags:\n- stories\n- tiny\npipeline_tag: text-generation\n"
        "base_model: acme-labs/Tiny-Mistral-300K-v0.1\ndatasets:\n- acme-labs/short-stories-v2\n- roneneldan/TinyStories\n---\n\n# A small model\n"
    )
    generation = {"bos_token_id": 1, "eos_token_id": 2, "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1}
    tokens = dict(LLAMA_TOKENS, chat_template="{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}")
    write("tiny-mistral", config, t, SPM, {"README.md": card, "generation_config.json": generation, "tokenizer_config.json": tokens})


def tiny_mixtral():
    """Four experts in float32, stacked out of w1, w2, w3; rows of 48; the chat template in a file of its own; no generation_config."""
    h, heads, kv, inter, vocab, n, experts = 64, 4, 4, 48, 512, 2, 4
    config = {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": h, "intermediate_size": inter, "num_hidden_layers": n,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab, "max_position_embeddings": 1024, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "num_local_experts": experts, "num_experts_per_tok": 2, "sliding_window": None,
        "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "float32",
    }
    t = [*ends(vocab, h, "F32", True)]
    for i in range(n):
        t += [*attention(layer(i), h, heads, kv, 16, "F32"), *norms(layer(i), h, "F32")]
        t.append([layer(i) + "block_sparse_moe.gate.weight", "F32", [experts, h]])
        for e in range(experts):
            t += mlp(layer(i) + f"block_sparse_moe.experts.{e}.", h, inter, "F32", ("w1", "w3", "w2"))
    tokens = dict(LLAMA_TOKENS, add_eos_token=True)
    write("tiny-mixtral", config, t, SPM, {"tokenizer_config.json": tokens, "chat_template.jinja": "{{ bos_token }}{{ messages[0].content }}\n"})


def wide_mixtral():
    """Experts whose rows are superblocks, one layer of them: for products of grid types (make_order.py)."""
    h, heads, kv, vocab, experts = 256, 4, 2, 512, 4
    config = {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": h, "intermediate_size": h, "num_hidden_layers": 1,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab, "max_position_embeddings": 1024, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "num_local_experts": experts, "num_experts_per_tok": 2, "sliding_window": None,
        "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "float32",
    }
    t = [*ends(vocab, h, "F32", True), *attention(layer(0), h, heads, kv, 64, "F32"), *norms(layer(0), h, "F32")]
    t.append([layer(0) + "block_sparse_moe.gate.weight", "F32", [experts, h]])
    for e in range(experts):
        t += mlp(layer(0) + f"block_sparse_moe.experts.{e}.", h, h, "F32", ("w1", "w3", "w2"))
    write("wide-mixtral", config, t, SPM, {"tokenizer_config.json": LLAMA_TOKENS})


def tiny_qwen2():
    """Biases on q, k and v, a tied head, 267 unused token ids behind the vocabulary."""
    h, heads, kv, inter, vocab, n = 32, 4, 2, 80, 151936, 2
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": h, "intermediate_size": inter, "num_hidden_layers": n,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab, "max_position_embeddings": 32768, "hidden_act": "silu",
        "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "max_window_layers": 2, "sliding_window": 32768, "use_sliding_window": False,
        "bos_token_id": 151643, "eos_token_id": 151645, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }
    t = [*ends(vocab, h, "BF16", False)]
    for i in range(n):
        t += [*attention(layer(i), h, heads, kv, 8, "BF16", "qkv"), *mlp(layer(i) + "mlp.", h, inter, "BF16"), *norms(layer(i), h, "BF16")]
    generation = {
        "bos_token_id": 151643, "pad_token_id": 151643, "do_sample": True, "eos_token_id": [151645, 151643], "repetition_penalty": 1.05,
        "temperature": 0.7, "top_p": 0.8, "top_k": 20,
    }
    write("tiny-qwen2", config, t, QWEN, {"tokenizer_config.json": QWEN_TOKENS, "generation_config.json": generation})


def tiny_qwen3():
    """Norms on q and k, head_dim of its own, YaRN, and a head in the file although the config calls it tied."""
    h, heads, kv, hd, inter, vocab, n = 32, 4, 2, 16, 96, 151936, 2
    config = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": h, "intermediate_size": inter, "num_hidden_layers": n,
        "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": hd, "vocab_size": vocab, "max_position_embeddings": 40960,
        "hidden_act": "silu", "rms_norm_eps": 1e-06, "rope_theta": 1000000, "attention_bias": False, "max_window_layers": 2,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, "sliding_window": None,
        "use_sliding_window": False, "bos_token_id": 151643, "eos_token_id": 151645, "tie_word_embeddings": True, "torch_dtype": "float16",
    }
    t = [*ends(vocab, h, "F16", True)]
    for i in range(n):
        t += [*attention(layer(i), h, heads, kv, hd, "F16", norms=True), *mlp(layer(i) + "mlp.", h, inter, "F16"), *norms(layer(i), h, "F16")]
    write("tiny-qwen3", config, t, QWEN, {"tokenizer_config.json": QWEN_TOKENS})


def tiny_qwen3moe():
    """Twelve experts (experts.10 sorts before experts.2), a float32 router among bfloat16, rows of 40."""
    h, heads, kv, hd, inter, vocab, n, experts = 32, 4, 2, 16, 40, 151936, 2, 12
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": h, "intermediate_size": 96, "num_hidden_layers": n,
        "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": hd, "vocab_size": vocab, "max_position_embeddings": 40960,
        "hidden_act": "silu", "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "rope_scaling": None, "attention_bias": False,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": inter, "norm_topk_prob": True, "num_experts": experts,
        "num_experts_per_tok": 3, "output_router_logits": False, "router_aux_loss_coef": 0.001, "sliding_window": None,
        "use_sliding_window": False, "bos_token_id": 151643, "eos_token_id": 151645, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }
    t = [*ends(vocab, h, "BF16", True)]
    for i in range(n):
        t += [*attention(layer(i), h, heads, kv, hd, "BF16", norms=True), *norms(layer(i), h, "BF16")]
        t.append([layer(i) + "mlp.gate.weight", "F32", [experts, h]])
        for e in range(experts):
            t += mlp(layer(i) + f"mlp.experts.{e}.", h, inter, "BF16")
    write("tiny-qwen3moe", config, t, QWEN, {"tokenizer_config.json": QWEN_TOKENS})


GEMMA_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


def gemma_layers(prefix, n, h, heads, kv, hd, inter, dtype):
    for i in range(n):
        p = layer(i, prefix)
        yield from attention(p, h, heads, kv, hd, dtype, norms=True)
        yield from mlp(p + "mlp.", h, inter, dtype)
        yield from norms(p, h, dtype, GEMMA_NORMS)


def tiny_gemma3():
    """Norms plus one in float16, embedding rows beyond the vocabulary, a sliding window, few keys in the config."""
    h, heads, kv, hd, inter, vocab, n = 64, 4, 1, 16, 72, 544, 7
    config = {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": h, "intermediate_size": inter, "num_hidden_layers": n,
        "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": hd, "vocab_size": vocab, "max_position_embeddings": 32768,
        "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": hd, "sliding_window": 512, "sliding_window_pattern": 6,
        "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "torch_dtype": "float16",
    }
    t = [*ends(576, h, "F16", False), *gemma_layers("model.", n, h, heads, kv, hd, inter, "F16")]
    tokens = dict(LLAMA_TOKENS, tokenizer_class="GemmaTokenizer", pad_token="<unk>")
    write("tiny-gemma3", config, t, SPM, {"tokenizer_config.json": tokens})


def tiny_gemma3_vision():
    """The text half of a vision model: text_config merged over the root, language_model. taken off names, the other half left out."""
    h, heads, kv, hd, inter, vocab, n = 32, 2, 1, 16, 64, 512, 2
    text = {
        "model_type": "gemma3_text", "hidden_size": h, "intermediate_size": inter, "num_hidden_layers": n, "num_attention_heads": heads,
        "num_key_value_heads": kv, "head_dim": hd, "vocab_size": vocab, "sliding_window": 64, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    }
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text, "mm_tokens_per_image": 4,
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
                          "num_attention_heads": 2, "image_size": 28, "patch_size": 14},
        "boi_token_index": 500, "eoi_token_index": 501, "image_token_index": 502, "eos_token_id": [2, 3], "torch_dtype": "bfloat16",
    }
    prefix = "language_model.model."
    t = [*ends(vocab, h, "BF16", False, prefix), *gemma_layers(prefix, n, h, heads, kv, hd, inter, "BF16")]
    t += [["multi_modal_projector.mm_input_projection_weight", "BF16", [16, 32]],
          ["vision_tower.vision_model.post_layernorm.weight", "BF16", [16]]]
    write("tiny-gemma3-vision", config, t, SPM, {"tokenizer_config.json": dict(LLAMA_TOKENS, bos_token={"content": "<s>"})})


def tiny_llama_hf():
    """A SentencePiece vocabulary that is only there as tokenizer.json (BPE with byte fallback); every row 40 wide, so nothing is blocked."""
    h, heads, kv, inter, vocab, n = 40, 5, 5, 56, 512, 2
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": h, "intermediate_size": inter, "num_hidden_layers": n,
        "num_attention_heads": heads, "vocab_size": vocab, "max_position_embeddings": 256, "hidden_act": "silu", "rms_norm_eps": 1e-05,
        "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True, "torch_dtype": "float32",
    }
    t = [*ends(vocab, h, "F32", False)]
    for i in range(n):
        t += [*attention(layer(i), h, heads, kv, 8, "F32"), *mlp(layer(i) + "mlp.", h, inter, "F32"), *norms(layer(i), h, "F32")]
    write("tiny-llama-hf", config, t, {"tokenizer.json": "tokenizers/stories-fast.json.gz"}, {"tokenizer_config.json": LLAMA_TOKENS})


def tiny_llama_fp8():
    """8-bit floats with a scale for each block of 32 x 48, cut at both edges; scales in two types; a scale of activations, which is left out."""
    h, heads, kv, hd, inter, vocab, n = 72, 4, 2, 16, 100, 512, 2
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": h, "intermediate_size": inter, "num_hidden_layers": n,
        "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": hd, "vocab_size": vocab, "max_position_embeddings": 256,
        "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "static", "weight_block_size": [32, 48]},
    }
    t = [*ends(vocab, h, "BF16", True)]
    for i in range(n):
        t += norms(layer(i), h, "BF16")
        for name, _, (rows, cols) in [*attention(layer(i), h, heads, kv, hd, ""), *mlp(layer(i) + "mlp.", h, inter, "")]:
            t.append([name, "F8_E4M3", [rows, cols]])
            t.append([name + "_scale_inv", ["F32", "BF16"][i], [-(-rows // 32), -(-cols // 48)]])
        t.append([layer(i) + "self_attn.q_proj.activation_scale", "F32", [1]])
    write("tiny-llama-fp8", config, t, SPM, {"tokenizer_config.json": LLAMA_TOKENS})


def tiny_qwen35():
    """Linear attention among full attention, value heads regrouped, a prediction layer, a vision half left out; transformers does not know it."""
    h, heads, kv, hd, inter, vocab, n = 32, 4, 2, 16, 64, 151936, 4
    kh, vh, kd, vd = 2, 4, 8, 8
    text = {
        "model_type": "qwen3_5_text", "hidden_size": h, "intermediate_size": inter, "num_hidden_layers": n, "num_attention_heads": heads,
        "num_key_value_heads": kv, "head_dim": hd, "vocab_size": vocab, "max_position_embeddings": 262144, "hidden_act": "silu",
        "rms_norm_eps": 1e-06, "full_attention_interval": 4, "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": kd, "linear_value_head_dim": vd, "linear_num_key_heads": kh,
        "linear_num_value_heads": vh, "mtp_num_hidden_layers": 1, "tie_word_embeddings": True, "eos_token_id": 151645,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25, "mrope_interleaved": True,
                            "mrope_section": [2, 1, 1]},
    }
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text, "image_token_id": 151655,
              "vision_config": {"model_type": "qwen3_5", "depth": 1, "hidden_size": 16}, "tie_word_embeddings": True, "transformers_version": "5.0.0"}
    prefix = "model.language_model."

    def full(p):
        yield from attention(p, h, heads, kv, hd, "BF16", norms=True)
        # the query projection also makes the output gate
        yield [p + "self_attn.q_proj.weight", "BF16", [2 * heads * hd, h]]

    def linear(p):
        p += "linear_attn."
        yield [p + "in_proj_qkv.weight", "BF16", [2 * kh * kd + vh * vd, h]]
        yield [p + "in_proj_z.weight", "BF16", [vh * vd, h]]
        for x in "ab":
            yield [p + f"in_proj_{x}.weight", "BF16", [vh, h]]
        yield [p + "conv1d.weight", "BF16", [2 * kh * kd + vh * vd, 1, 4]]
        yield [p + "A_log", "F32", [vh]]
        yield [p + "dt_bias", "BF16", [vh]]
        yield [p + "norm.weight", "F32", [vd]]
        yield [p + "out_proj.weight", "BF16", [h, vh * vd]]

    t = {x[0]: x for x in ends(vocab, h, "BF16", False, prefix)}
    for i in range(n):
        p = layer(i, prefix)
        mixer = full(p) if i % 4 == 3 else linear(p)
        t |= {x[0]: x for x in [*mixer, *mlp(p + "mlp.", h, inter, "BF16"), *norms(p, h, "BF16")]}
    p = "mtp.layers.0."
    t |= {x[0]: x for x in [*full(p), *mlp(p + "mlp.", h, inter, "BF16"), *norms(p, h, "BF16")]}
    t |= {x: [x, "BF16", [h]] for x in ("mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.norm.weight", "model.visual.merger.norm.weight")}
    t["mtp.fc.weight"] = ["mtp.fc.weight", "BF16", [h, 2 * h]]
    write("tiny-qwen35", config, t.values(), QWEN, {"tokenizer_config.json": QWEN_TOKENS})


def tiny_qwen35_even():
    """As many value heads as key heads, an F16 A_log and norm, no list of layer kinds, no sections, two prediction layers that only the tensors tell of."""
    h, heads, kv, hd, inter, vocab, n, kh, d = 32, 2, 1, 16, 64, 151936, 3, 2, 16
    config = {
        "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": h, "intermediate_size": inter,
        "num_hidden_layers": n, "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": hd, "vocab_size": vocab,
        "max_position_embeddings": 2048, "hidden_act": "silu", "rms_norm_eps": 1e-06, "linear_conv_kernel_dim": 3, "linear_key_head_dim": d,
        "linear_value_head_dim": d, "linear_num_key_heads": kh, "linear_num_value_heads": kh, "full_attention_interval": 2,
        "tie_word_embeddings": False, "rope_theta": 1000000.0,
    }
    t = [*ends(vocab, h, "BF16", True)]
    for i in range(n + 2):
        p = layer(i) if i < n else f"mtp.layers.{i - n}."
        if i == 1 or i >= n:
            full = {x[0]: x for x in attention(p, h, heads, kv, hd, "BF16", norms=True)}
            full[p + "self_attn.q_proj.weight"][2][0] *= 2
            t += full.values()
        else:
            a = p + "linear_attn."
            t += [[a + "in_proj_qkv.weight", "BF16", [3 * kh * d, h]], [a + "in_proj_z.weight", "BF16", [kh * d, h]],
                  [a + "in_proj_a.weight", "BF16", [kh, h]], [a + "in_proj_b.weight", "BF16", [kh, h]],
                  [a + "conv1d.weight", "F16", [3 * kh * d, 1, 3]], [a + "A_log", ["F16", "F32", "BF16"][i], [kh]], [a + "dt_bias", "F16", [kh]],
                  [a + "norm.weight", "F16", [d]], [a + "out_proj.weight", "BF16", [h, kh * d]]]
        t += [*mlp(p + "mlp.", h, inter, "BF16"), *norms(p, h, "F16" if i else "BF16")]
    t += [[x, "BF16", [h]] for x in ("mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.norm.weight")]
    t.append(["mtp.fc.weight", "BF16", [h, 2 * h]])
    write("tiny-qwen35-even", config, t, QWEN, {"tokenizer_config.json": QWEN_TOKENS})


def tiny_bailingmoe2():
    """Fused query_key_value that stays fused, a dense layer first, shared experts, a router bias, a prediction layer; config of remote code."""
    h, heads, kv, hd, inter, moe, vocab, n, experts = 32, 4, 2, 8, 96, 64, 151936, 3, 8
    config = {
        "architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe", "hidden_size": h, "intermediate_size": inter,
        "auto_map": {"AutoConfig": "configuration_bailing_moe_v2.BailingMoeV2Config"}, "num_hidden_layers": n, "num_attention_heads": heads,
        "num_key_value_heads": kv, "head_dim": hd, "vocab_size": vocab, "max_position_embeddings": 32768, "hidden_act": "silu",
        "rms_norm_eps": 1e-06, "rope_theta": 600000, "rope_scaling": None, "partial_rotary_factor": 0.5, "first_k_dense_replace": 1,
        "moe_intermediate_size": moe, "num_experts": experts, "num_experts_per_tok": 2, "num_shared_experts": 1, "n_group": 4, "topk_group": 2,
        "score_function": "sigmoid", "routed_scaling_factor": 2.5, "norm_topk_prob": True, "num_nextn_predict_layers": 1, "use_qk_norm": True,
        "tie_word_embeddings": False, "pad_token_id": 151643, "eos_token_id": 151645, "torch_dtype": "bfloat16",
    }
    t = [["model.word_embeddings.weight", "BF16", [vocab, h]], ["model.norm.weight", "BF16", [h]], ["lm_head.weight", "BF16", [vocab, h]]]
    for i in range(n + 1):
        p = layer(i)
        t.append([p + "attention.query_key_value.weight", "BF16", [(heads + 2 * kv) * hd, h]])
        t.append([p + "attention.dense.weight", "BF16", [h, heads * hd]])
        t += [[p + f"attention.{x}_layernorm.weight", "BF16", [hd]] for x in ("query", "key")]
        t += norms(p, h, "BF16")
        if i == 0:
            t += mlp(p + "mlp.", h, inter, "BF16")
            continue
        t += [[p + "mlp.gate.weight", "BF16", [experts, h]], [p + "mlp.gate.expert_bias", "F32", [experts]]]
        t += mlp(p + "mlp.shared_experts.", h, moe, "BF16")
        for e in range(experts):
            t += mlp(p + f"mlp.experts.{e}.", h, moe, "BF16")
    p = layer(n)
    t += [[p + "eh_proj.weight", "BF16", [h, 2 * h]], *[[p + f"{x}.weight", "BF16", [h]] for x in ("enorm", "hnorm", "final_layernorm")]]
    tokens = {k: v for k, v in QWEN_TOKENS.items() if k != "chat_template"} | {"tokenizer_class": "PreTrainedTokenizerFast"}
    write("tiny-bailingmoe2", config, t, QWEN, {"tokenizer_config.json": tokens})


def main():
    for make in (tiny_llama3, tiny_llama_tied, tiny_mistral, tiny_mixtral, wide_mixtral, tiny_qwen2, tiny_qwen3, tiny_qwen3moe, tiny_gemma3,
                 tiny_gemma3_vision, tiny_llama_hf, tiny_llama_fp8, tiny_qwen35, tiny_qwen35_even, tiny_bailingmoe2):
        make()


if __name__ == "__main__":
    main()
