"""Asks the real gguf-py what general.* keys it makes of folder names, config names and model cards.

Writes testdata/convert/metadata/cases.json: for each case what stands in the model folder, the parameter counts, and the keys, in order,
that Metadata.load and set_gguf_meta_model give. The converter's own two fallbacks (name from the folder, size label from the parameter
count) are part of it, as they stand in its prepare_metadata.
"""

import json
import sys
import tempfile
from pathlib import Path

import common

sys.path.insert(0, str(common.sources() / "gguf-py"))
import gguf  # noqa: E402

KINDS = {
    gguf.GGUFValueType.STRING: "str", gguf.GGUFValueType.UINT32: "u32", gguf.GGUFValueType.INT32: "i32",
    gguf.GGUFValueType.FLOAT32: "f32", gguf.GGUFValueType.BOOL: "bool", gguf.GGUFValueType.ARRAY: "arr",
}


def keys(case):
    """The general.* keys of one case: folder name, files by name, [total, shared, per expert, experts], options."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / case["folder"]
        folder.mkdir()
        for name, content in case.get("files", {}).items():
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / name).write_text(text, encoding="utf-8")
        override = None
        if "override" in case:
            override = Path(parent) / "override.json"
            override.write_text(json.dumps(case["override"]))
        total, shared, expert, experts = case["params"]
        meta = gguf.Metadata.load(override, folder, case.get("model_name"), total)
        if meta.name is None:
            meta.name = folder.name
        if meta.size_label is None and total > 0:
            meta.size_label = gguf.size_label(total, shared, expert, experts)
        writer = gguf.GGUFWriter(path=None, arch="llama")
        writer.add_type(gguf.GGUFType.MODEL)
        meta.set_gguf_meta_model(writer)
        return [[k, KINDS[v.type], v.value] for k, v in writer.kv_data[0].items()]


B = 10**9
M = 10**6


def dense(n):
    return [n, n, 0, 0]


def card(*lines):
    return {"README.md": "\n".join(["---", *lines, "---", "", "# Title", ""])}


NAMES = [
    ("Llama-3.2-1B-Instruct", 1235814432), ("Llama-2-7b-chat-hf", 6738415616), ("Mistral-7B-Instruct-v0.3", 7248023552),
    ("Mixtral-8x7B-v0.1", 46702792704), ("Qwen2.5-0.5B-Instruct", 494032768), ("Qwen3-0.6B", 596049920), ("Qwen3-30B-A3B", 30532122624),
    ("gemma-3-1b-it", 999885952), ("gemma-3-270m", 268098176), ("SmolLM2-135M-Instruct", 134515008), ("TinyLlama-1.1B-Chat-v1.0", 1100048384),
    ("phi-2", 2779683840), ("Phi-3-mini-4k-instruct", 3821079552), ("bloom-7b1", 7069016064), ("DeepSeek-R1-Distill-Qwen-1.5B", 1777088000),
    ("stories260k", 260032), ("stories-wide", 2231040), ("Yi-34B-200K", 34388917248), ("Qwen2-57B-A14B", 57409011200),
    ("model", 1000), ("my model of stories", 123456), ("llama", 7 * B), ("gpt2-xl", 1557611200), ("pythia-70m-deduped", 70426624),
    ("OLMo-1B-0724-hf", 1176764416), ("internlm2-chat-1_8b", 1889110016), ("WizardLM-13B-V1.2", 13015864320), ("v1.5-large", 300 * M),
    ("some--double---dash-3B", 3 * B), ("-leading-1B", B), ("falcon-7b-instruct-q4_0", 7217189760), ("thing-bf16", 5 * M), ("thing-fp32-v2", 5 * M),
    ("Nous-Hermes-2-Mixtral-8x7B-DPO", 46702809088), ("granite-3.0-1b-a400m-instruct", 1334628352), ("vit-large-3B", 3 * B), ("x-small", 5 * M),
    ("a-1.5T", int(1.5e12)), ("Ünïcode-Modell-2B", 2 * B), ("ALLCAPS-7B-CHAT", 7 * B), ("iter2-7B", 7 * B), ("7B-first", 7 * B), ("model-8x22B-it", 140 * B),
    ("snapshot.2024-01", 5 * M), ("name_with_underscores-350M", 350 * M), ("tiny-vision-lora", 5 * M), ("abcdef0123456789", 44 * M),
    ("gemma-3n-E2B-it", 4457090688), ("context-128K-2B", 2 * B), ("Model.v2.gguf", 5 * M), ("1", 5 * M), ("a-b", 5 * M), ("o1-mini-Preview", 5 * M),
]

COUNTS = [1, 999, 1000, 9999, 10500, 99499, 99500, 999499, 999500, 999999, 1000000, 1000001, 1049999, 1050000, 1250000, 9949999, 9950000,
          12345678, 99500000, 1000000000, 1000000001, 1235814432, 9950000000, 70553706496, 405853388800, 1000000000001, 1500000000000]


def cases():
    for name, n in NAMES:
        yield {"folder": name, "params": dense(n)}
    for n in COUNTS:
        yield {"folder": "model", "params": dense(n)}
    yield {"folder": "moe", "params": [46702792704, 1605636096, 5637144576, 8]}
    yield {"folder": "moe", "params": [685000, 65000, 77500, 8]}

    names = ["org-name/Base-Model-7B-Chat-v2", "./Base-Model-7B", "../x/y", "/srv/models/Base-Model-7B", "plain-3B-instruct", "", "a b c",
             "org.name/v1", "meta-llama/Llama-2-7b-hf", "x/"]
    for name in names:
        yield {"folder": "folder-1B", "files": {"config.json": {"_name_or_path": name}}, "params": dense(7 * B)}
    yield {"folder": "folder-1B", "files": {"config.json": {"_name_or_path": "org/other", "model_type": "llama"}}, "params": dense(B)}

    yield {"folder": "plain", "files": card("license: mit"), "params": dense(5 * M)}
    yield {"folder": "plain", "files": card("license:", "- mit", "- apache-2.0"), "params": dense(5 * M)}
    yield {"folder": "plain", "files": card("license: other", "license_name: tongyi", "license_link: LICENSE"), "params": dense(5 * M)}
    yield {"folder": "plain", "files": card("language: en"), "params": dense(5 * M)}
    yield {"folder": "plain", "files": card("language:", "- no", "- en", "- 'yes'", "languages:", "- de"), "params": dense(5 * M)}
    yield {"folder": "plain", "files": card("tags: single", "pipeline_tag: text-generation"), "params": dense(5 * M)}
    yield {"folder": "plain", "files": card("tags: []", "language: []"), "params": dense(5 * M)}
    yield {"folder": "plain", "files": card("tags:", "- a", "\t- b"), "params": dense(5 * M)}
    yield {"folder": "plain", "files": card("base_model: org/Base-7B-v1.1"), "params": dense(7 * B)}
    yield {"folder": "plain", "files": card("base_model:", "- org/One-7B", "- two-3B", "- https://example.org/x/y", "datasets: single"), "params": dense(7 * B)}
    yield {"folder": "plain", "files": card("base_model:", "- {name: Named, author: Someone, doi: 10.1/x}"), "params": dense(7 * B)}
    yield {"folder": "plain", "files": card("base_model: []", "datasets: []"), "params": dense(7 * B)}
    yield {"folder": "plain", "files": card("datasets:", "- org/Set-v2", "- ssh://host/p", "- name: Listed"), "params": dense(7 * B)}
    yield {"folder": "plain", "files": card("name: Card Name", "author: A", "version: '1.2'", "organization: O", "description: D", "finetune: F", "basename: B",
                                            "size_label: 9B", "url: u", "doi: d", "uuid: i", "repo_url: r"), "params": dense(5 * M)}
    yield {"folder": "plain", "files": card("model_name: M", "model_creator: C", "model_type: T", "model_author: A2", "model_description: D2", "quantized_by: Q"),
           "params": dense(5 * M)}
    yield {"folder": "plain", "files": {"README.md": "# no front matter\n"}, "params": dense(5 * M)}
    yield {"folder": "plain", "files": {"README.md": ""}, "params": dense(5 * M)}
    yield {"folder": "plain", "files": {"README.md": "---\n---\ntext\n"}, "params": dense(5 * M)}
    yield {"folder": "plain", "files": {"README.md": "---\nlicense: mit\n"}, "params": dense(5 * M)}
    yield {"folder": "plain", "files": {"README.md": "---\r\nlicense: mit\r\nlanguage:\r\n- no\r\n---\r\n"}, "params": dense(5 * M)}
    yield {"folder": "plain", "files": {"README.md": "---\n- a list\n---\n"}, "params": dense(5 * M)}
    yield {"folder": "plain", "files": {"README.md": "\n---\nlicense: mit\n---\n"}, "params": dense(5 * M)}

    sampling = {"sequence": "k;p;t", "top_k": 40, "top_p": 0.95, "min_p": 0.05, "xtc_probability": 0.5, "xtc_threshold": 0.1, "temperature": 1, "penalty_last_n": 64,
                "repetition_penalty": 1.1, "mirostat": 2, "mirostat_tau": 5.0, "mirostat_eta": 0.1}
    yield {"folder": "plain", "files": {"generation_config.json": sampling}, "params": dense(5 * M)}
    yield {"folder": "plain", "files": {"generation_config.json": {"penalty_repeat": 1.2, "repetition_penalty": 1.1, "temperature": None}}, "params": dense(5 * M)}
    yield {"folder": "plain", "files": {"generation_config.json": "{not json"}, "params": dense(5 * M)}

    yield {"folder": "plain-7B", "override": {"general.name": "Over", "general.author": "Auth", "general.tags": ["x", "y"], "general.size_label": "1X",
           "general.license.name": "L", "general.base_models": [{"name": "b", "version": "1"}], "general.sampling.temp": 0.5}, "params": dense(7 * B)}
    yield {"folder": "plain-7B", "model_name": "Given Name", "params": dense(7 * B)}
    yield {"folder": "plain-7B", "model_name": "Given Name", "override": {"general.name": "Over"}, "params": dense(7 * B)}


def main():
    out = common.GOLDENS / "metadata"
    out.mkdir(parents=True, exist_ok=True)
    done = [{**case, "keys": keys(case)} for case in cases()]
    lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in done)
    (out / "cases.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(len(done), "cases")


if __name__ == "__main__":
    main()
