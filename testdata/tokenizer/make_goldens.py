"""Makes hf.json.gz, convert.json.gz and run.json.gz beside this file with the real tools (interop/setup.sh fetches them).

    make_goldens.py [hf] [run] [convert] [newer] [convert:NAME ...]

It runs under the Python that interop/setup.sh installs. convert:NAME makes one case anew and keeps the others.

hf       what the tokenizers library makes of texts.py with toy tokenizers of many kinds, trained here, and with two real ones
convert  what convert_hf_to_gguf.py --vocab-only writes for folders whose tokenizer files differ in some detail
newer    the library's normal forms around characters that are newer than its tables
run      what llama.cpp makes of texts.py with a toy vocabulary under every pre-tokenizer name, and with a SentencePiece one
"""

import copy
import ctypes
import gzip
import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "interop")]

import common
import ggufview
from texts import TEXTS

REAL = HERE.parent / "convert" / "tokenizers"
PROBE = json.loads(
    r'"\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n\ud83d\ude80 (normal) \ud83d\ude36\u200d\ud83c\udf2b\ufe0f (multiple emojis concatenated) '
    r'\u2705 \ud83e\udd99\ud83e\udd99 3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 \u1780\u17b6\u1793\u17cb\u178f\u17c2\u1796\u17b7'
    r'\u179f\u17c1\u179f\u17a2\u17b6\u1785\ud83d\ude01 ?\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\u5929\uff5e ------======= \u043d\u0435\u0449\u043e '
    r"\u043d\u0430 \u0411\u044a\u043b\u0433\u0430\u0440\u0441\u043a\u0438 ''''''```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, "
    r"'RE you sure? 'M not sure I'll make it, 'D you like some tea? We'Ve a'lL" + '"'
)


def save(name, doc):
    data = json.dumps(doc, ensure_ascii=False, separators=(",", ":")).encode()
    path = HERE / name
    with open(path, "wb") as f, gzip.GzipFile(filename="", mode="wb", fileobj=f, compresslevel=9, mtime=0) as z:
        z.write(data)
    print(name, len(data), path.stat().st_size, flush=True)


def real(name):
    return json.loads(gzip.decompress((REAL / name).read_bytes()))


# --- hf -------------------------------------------------------------------------------------------------------------------------

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+|" + r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + ENDS + "|" + r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + ENDS
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
DEEP3 = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"


def split(pattern, behavior="Isolated", kind="Regex", invert=False):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def seq(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def level(regex=False, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def toys():
    """name: (pre_tokenizer, what else differs)"""
    meta = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    marks = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    return {
        "gpt-2": (level(True), {}),
        "gpt-2-prefix": (level(True, True), {}),
        "llama3": (seq(split(LLAMA3), level()), {"ignore_merges": True}),
        "llama3-merges": (seq(split(LLAMA3), level()), {}),
        "qwen2": (seq(split(QWEN2), level()), {"normalizer": {"type": "NFC"}}),
        "qwen35": (seq(split(QWEN35), level()), {"normalizer": {"type": "NFC"}}),
        "smollm": (seq(digits(True), level(True)), {}),
        "digits-together": (seq(digits(False), level(True)), {}),
        "falcon": (seq({"type": "Punctuation", "behavior": "Contiguous"}, level(True), digits(False), split("[0-9][0-9][0-9]")), {}),
        "tekken": (seq(split(TEKKEN), level()), {}),
        "gpt-4o": (seq(split(GPT4O), level()), {}),
        "ling": (seq(split(LING), level()), {"normalizer": {"type": "NFKC"}}),
        "deepseek-v3": (seq(split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), split(DEEP3), level()), {}),
        "deepseek-coder": (
            seq(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), digits(True), level()),
            {},
        ),
        "bloom": (seq(split(BLOOM), level()), {}),
        "literal": (seq(split(r"\d+", kind="String"), level()), {}),
        "literal-regex": (seq(split(r"\d+"), level()), {}),
        "removed": (seq(split(r"\s+", "Removed"), level()), {}),
        "inverted": (seq(split(r"\w+|[^\w\s]+", "Removed", invert=True), level()), {}),
        "with-previous": (seq(split(" ", "MergedWithPrevious", "String"), level()), {}),
        "with-next": (seq(split(r"[ \n]", "MergedWithNext"), level()), {}),
        "contiguous": (seq(split(r"[a-z]", "Contiguous"), level()), {}),
        "line-ends": (seq(split(r"\s+$"), level()), {}),
        "lower": (level(True), {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]}}),
        "bytes": (split(" ", "MergedWithPrevious", "String"), {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, "bytes": True}),
        "bytes-prepend": (None, {"normalizer": marks, "bytes": True}),
        "metaspace": (meta, {"unk": True}),
        "metaspace-first": (dict(meta, prepend_scheme="first"), {"unk": True, "fuse": True}),
        "unigram": (meta, {"unigram": True}),
    }


def toy(name, pre, opt):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    corpus = (HERE / "corpus.txt").read_text(encoding="utf-8").split("\n") + TEXTS * 2
    byte_level = pre is not None and "ByteLevel" in json.dumps(pre)
    special = ["<s>", "</s>", "<unk>", "<|im_end|>"]
    if opt.get("unigram"):
        model, trainer = models.Unigram(), trainers.UnigramTrainer(vocab_size=500, special_tokens=special, unk_token="<unk>", show_progress=False)
    else:
        alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
        model = models.BPE(unk_token="<unk>" if opt.get("unk") else None)
        trainer = trainers.BpeTrainer(
            vocab_size=560, special_tokens=special, initial_alphabet=alphabet, limit_alphabet=256 if byte_level else 120, show_progress=False
        )
    t = Tokenizer(model)
    doc = json.loads(t.to_str())
    doc.update(pre_tokenizer=pre, normalizer=opt.get("normalizer"))
    t = Tokenizer.from_str(json.dumps(doc))
    t.train_from_iterator(corpus, trainer)
    doc = json.loads(t.to_str())
    m = doc["model"]
    if opt.get("bytes"):
        ids = {f"<0x{i:02X}>": i for i in range(256)}
        m["vocab"] = dict(ids, **{k: v + 256 for k, v in m["vocab"].items()})
        m["byte_fallback"] = True
        for a in doc["added_tokens"]:
            a["id"] += 256
    m["ignore_merges"] = bool(opt.get("ignore_merges"))
    m["fuse_unk"] = bool(opt.get("fuse"))
    if opt.get("unigram"):
        del m["ignore_merges"], m["fuse_unk"]
        doc["decoder"] = pre
    elif opt.get("bytes"):
        doc["decoder"] = {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        }
    else:
        doc["decoder"] = pre if pre["type"] == "Metaspace" else level(True)
    n = len(m["vocab"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    doc["added_tokens"] += [
        dict(flags, id=n, content="MiXeD", single_word=True),
        dict(flags, id=n + 1, content="<|endoftext|>", special=True),
        dict(flags, id=n + 2, content=" girl ", lstrip=True),
        dict(flags, id=n + 3, content="<pad>", rstrip=True, normalized=True),
        dict(flags, id=n + 4, content="XML", single_word=True, normalized=True),
        dict(flags, id=n + 5, content="caf\u00e9", normalized=True),
    ]
    doc["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {x: {"id": x, "ids": [next(a["id"] for a in doc["added_tokens"] if a["content"] == x)], "tokens": [x]} for x in ("<s>", "</s>")},
    }
    return doc


def encoded(t):
    plain = [t.encode(x, add_special_tokens=False).ids for x in TEXTS]
    probe = t.encode(PROBE).ids
    return {
        "ids": plain,
        "special": [t.encode(x).ids for x in TEXTS],
        "decoded": [t.decode(i, skip_special_tokens=False) for i in plain],
        "probe": hashlib.sha256(str(probe).encode()).hexdigest(),
    }


def make_hf():
    from tokenizers import Tokenizer

    out = []
    for name, (pre, opt) in toys().items():
        doc = toy(name, pre, opt)
        out.append({"name": name, "tokenizer": doc, **encoded(Tokenizer.from_str(json.dumps(doc)))})
    for name in ("llama-3", "qwen3"):
        t = Tokenizer.from_str(json.dumps(real(name + ".json.gz")))
        out.append({"name": name, "file": f"convert/tokenizers/{name}.json.gz", **encoded(t)})
    save("hf.json.gz", {"texts": TEXTS, "cases": out})


# --- convert --------------------------------------------------------------------------------------------------------------------

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 72, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
}
LLAMA_TOKENS = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True, "add_eos_token": False}
QWEN_CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936, "bos_token_id": 151643, "eos_token_id": 151645}
QWEN_TOKENS = {
    "tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None, "unk_token": None,
    "add_bos_token": False, "add_prefix_space": False, "clean_up_tokenization_spaces": False,
}
DEL = object()


def over(base, **changes):
    return {k: v for k, v in dict(base, **changes).items() if v is not DEL}


def added(token_id, content, **flags):
    a = {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return dict(a, **flags)


def decoder(*tokens):
    return {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in tokens}


def special(x):
    return {"SpecialToken": {"id": x, "type_id": 0}}


def text(x):
    return {"Sequence": {"id": x, "type_id": 0}}


def template(first=None, last=None, pair=None):
    single = ([special(first)] if first else []) + [text("A")] + ([special(last)] if last else [])
    pair = pair or single + [text("B")]
    names = sorted({p["SpecialToken"]["id"] for p in single + pair if "SpecialToken" in p})
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {x: {"id": x, "ids": [1], "tokens": [x]} for x in names}}


def object_token(content, **flags):
    return dict({"__type": "AddedToken", "content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}, **flags)


def folders():
    """name: files; a value is JSON, text, or an object with $base, a file of REAL: its top-level fields changed by $set, or one $part of it."""
    spm = {"$base": "stories.model"}

    def fast(**fields):
        return {"$base": "stories-fast.json.gz", "$set": fields}

    def qwen(**fields):
        return {"$base": "qwen3.json.gz", "$set": fields}

    def c(**k):
        return over(CONFIG, **k)

    def t(**k):
        return over(LLAMA_TOKENS, **k)

    def q(**k):
        return over(QWEN_TOKENS, **k)

    plain = {"config.json": c(), "tokenizer_config.json": t(), "tokenizer.model": spm}
    roberta = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": True, "add_prefix_space": True}
    extra = [
        added(151669, "<|\u00e9|>"), added(151670, " spaced tok ", lstrip=True), added(151671, "\u2581und\u2581er", normalized=True),
        added(151672, "<tool \u00e9>", normalized=True), added(151673, "[SW]", single_word=True), added(151674, "<\uff5cx\uff5c>", normalized=True),
        added(151675, "\uff46\uff55\uff4c\uff4c"), added(151676, "e\u0301 nfd"), added(151677, "ok .dot ?", rstrip=True),
    ]
    qwen_added = real("qwen3.json.gz")["added_tokens"]
    fast_added = real("stories-fast.json.gz")["added_tokens"]
    return {
        "overlays": over(plain, **{
            "config.json": c(vocab_size=530),
            "tokenizer_config.json": t(added_tokens_decoder=decoder(
                added(0, "<unk>", special=True), added(1, "<s>", special=True), added(5, "\u2581foo"), added(515, "\u2581bar\u2581baz"),
                added(516, "<|im|>"), added(517, "<unused3>"), added(518, "<mask>"), added(600, "toolarge"))),
            "added_tokens.json": {"<x>": 513, "<y>": 514, "<z>": 514, "<w>": 3},
        }),
        "named-templates": over(plain, **{
            "tokenizer_config.json": t(bos_token=object_token("<s>", normalized=True), sep_token="</s>", pad_token="<unk>", add_sep_token=True, chat_template=[
                {"name": "default", "template": "D"}, {"name": "tool use!", "template": "T"}, {"name": "", "template": "x"}]),
            "tokenizer.json": fast(),
        }),
        "one-named-template": over(plain, **{"tokenizer_config.json": t(chat_template=[{"name": "rag", "template": "R"}])}),
        "template-files": over(plain, **{
            "chat_template.jinja": "line1\r\nline2\rline3\n", "additional_chat_templates/rag.jinja": "RAG", "chat_template.json": {"chat_template": "J"}}),
        "template-json": over(plain, **{"chat_template.json": {"chat_template": "J"}}),
        "template-null": over(plain, **{"tokenizer_config.json": t(chat_template=None), "chat_template.jinja": "X"}),
        "template-bad": over(plain, **{"tokenizer_config.json": t(chat_template={"a": "b"})}),
        "empty-config": over(plain, **{"tokenizer_config.json": {}, "chat_template.jinja": "X"}),
        "no-config": over(plain, **{"tokenizer_config.json": DEL, "tokenizer.json": fast(post_processor=template("<s>", "</s>"))}),
        "code-llama": over(plain, **{
            "config.json": c(vocab_size=32016), "tokenizer_config.json": t(chat_template="CT", prefix_token="\u2581<PRE>"),
            "tokenizer.json": fast(post_processor=template("<s>", "<unk>"))}),
        "granite": over(plain, **{"config.json": c(vocab_size=49152), "tokenizer_config.json": t(add_prefix_space=True, add_bos_token=DEL, add_eos_token=DEL)}),
        "short-vocabulary": over(plain, **{"config.json": c(vocab_size=400)}),
        "bert-ends": over(plain, **{
            "tokenizer_config.json": t(cls_token="<s>", bos_token=DEL),
            "tokenizer.json": fast(post_processor=template("<s>", "</s>", [special("<s>"), text("A"), special("</s>"), special("</s>"), text("B"), special("</s>")]))}),
        "unknown-ends": over(plain, **{"tokenizer.json": fast(post_processor=template("<unk>", "<unk>"))}),
        "roberta": over(plain, **{
            "tokenizer_config.json": t(bos_token=DEL, eos_token=DEL, add_bos_token=DEL, add_eos_token=DEL), "tokenizer.json": fast(post_processor=roberta)}),
        "separator": over(plain, **{
            "tokenizer_config.json": t(add_bos_token=DEL, add_eos_token=DEL, sep_token="</s>"),
            "tokenizer.json": fast(post_processor={"type": "Sequence", "processors": [level(True), template("<s>", None, [special("<s>"), text("A"), special("</s>"), text("B")])]})}),
        "object-eos": over(plain, **{"tokenizer_config.json": t(eos_token=object_token("</s>")), "tokenizer.json": fast(post_processor=template(None, "</s>"))}),
        "odd-ids": over(plain, **{
            "config.json": c(pad_token_id=32000, sep_token_id=7, mask_token_id=True, cls_token_id=3, unk_token_id=0, eot_token_id=9),
            "tokenizer_config.json": t(add_unk_token=True)}),
        "list-of-eos": over(plain, **{"config.json": c(eos_token_id=[2, 5], bos_token_id=None)}),
        "lower-case": over(plain, **{"tokenizer.json": fast(normalizer={"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "StripAccents"}]})}),
        "qwen2-spm": over(plain, **{
            "config.json": c(architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=520),
            "tokenizer_config.json": t(tokenizer_class="Qwen2Tokenizer", add_prefix_space=False)}),
        "fast-added": {"config.json": c(vocab_size=520), "tokenizer.json": fast(added_tokens=fast_added + [
            added(512, "<p>", special=True), added(513, "<q>"), added(514, "\u2581r"), added(515, "<|s|>")])},
        "fast-special-map": {
            "config.json": c(vocab_size=520), "tokenizer.json": fast(), "tokenizer_config.json": t(pad_token="<pad>"),
            "special_tokens_map.json": {
                "bos_token": {k: v for k, v in object_token("<s>").items() if k != "__type"}, "eos_token": "</s>",
                "additional_special_tokens": ["<a>", {k: v for k, v in object_token("<b>", normalized=True).items() if k != "__type"}]}},
        "fast-decoder": {
            "config.json": c(vocab_size=520), "tokenizer.json": fast(),
            "tokenizer_config.json": t(additional_special_tokens=["<e1>", "<e2>"], added_tokens_decoder=decoder(
                added(0, "<unk>", special=True), added(1, "<s>"), added(2, "</s>", special=True, normalized=True), added(512, "<e2>", special=True), added(513, "<user>")))},
        "fast-added-file": {"config.json": c(vocab_size=520), "tokenizer.json": fast(), "tokenizer_config.json": t(), "added_tokens.json": {"<n1>": 512, "<n2>": 513}},
        "qwen-added": {
            "config.json": c(**QWEN_CONFIG), "tokenizer.json": qwen(added_tokens=qwen_added + extra), "tokenizer_config.json": q(clean_up_tokenization_spaces=True)},
        "qwen-decoder": {
            "config.json": c(**QWEN_CONFIG), "tokenizer.json": qwen(),
            "tokenizer_config.json": q(added_tokens_decoder=decoder(*extra, added(151643, "<|endoftext|>", normalized=True), added(151657, "<tool_call>", special=True)),
                                       additional_special_tokens=["<|im_start|>", "<new1>"])},
        "qwen-old-files": {
            "config.json": c(**QWEN_CONFIG), "tokenizer.json": qwen(), "tokenizer_config.json": {}, "added_tokens.json": {"<|endoftext|>": 151643, "<extra>": 151669},
            "special_tokens_map.json": {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}},
        "qwen-vocab-json": {
            "config.json": c(**QWEN_CONFIG), "vocab.json": {"$base": "qwen3.json.gz", "$part": "vocab"}, "merges.txt": {"$base": "qwen3.json.gz", "$part": "merges"},
            "tokenizer_config.json": q(chat_template="C", added_tokens_decoder=decoder(*[dict(a) for a in qwen_added], added(151669, "<more>")))},
        "llama-class": {
            "config.json": c(vocab_size=128300, bos_token_id=128000, eos_token_id=[128001, 128009]), "tokenizer.json": {"$base": "llama-3.json.gz", "$set": {}},
            "tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "pad_token": "<|finetune_right_pad_id|>",
                "added_tokens_decoder": decoder(added(128000, "<|begin_of_text|>", special=True), added(128256, "<myrole>"), added(128257, "<myrole2>", special=True))}},
    }


def write_folder(where, files):
    for name, value in files.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, str):
            path.write_bytes(value.encode())
        elif isinstance(value, dict) and "$part" in value:
            model = real(value["$base"])["model"]
            text = json.dumps(model["vocab"]) if value["$part"] == "vocab" else "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"])
            path.write_text(text, encoding="utf-8")
        elif isinstance(value, dict) and "$base" in value:
            if value["$base"].endswith(".gz"):
                path.write_text(json.dumps(dict(real(value["$base"]), **value["$set"]), ensure_ascii=False), encoding="utf-8")
            else:
                shutil.copyfile(REAL / value["$base"], path)
        else:
            path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def make_convert(only=()):
    kept = json.loads(gzip.decompress((HERE / "convert.json.gz").read_bytes()))["cases"] if only else []
    made_now = {}
    with tempfile.TemporaryDirectory() as tmp:
        for name, files in folders().items():
            if only and name not in only:
                continue
            where = Path(tmp) / name
            write_folder(where, files)
            made = Path(tmp) / (name + ".gguf")
            common.convert(where, made, "--vocab-only")
            kv = [e for e in ggufview.summary(made)["kv"] if e[0].startswith("tokenizer.")]
            made_now[name] = {"name": name, "files": files, "kv": kv}
            print(name, len(kv), flush=True)
            shutil.rmtree(where)
            made.unlink()
    have = dict({c["name"]: c for c in kept}, **made_now)
    save("convert.json.gz", {"cases": [have[name] for name in folders() if name in have]})


# --- run ------------------------------------------------------------------------------------------------------------------------

PRES = """default llama-bpe llama3 falcon3 dbrx smaug-bpe glm4 jais-2 qwen2 deepseek-r1-qwen megrez stablelm2 qwen35 gpt-2 olmo trillion starcoder smollm
command-r falcon deepseek-llm deepseek-coder deepseek-v3 spark2_5 youtu bloom poro-chat viking tekken chameleon gpt-4o llama4 granite-embed-multi-97m tiny_aya
bailingmoe2 seed-coder ufakzeka afmoe laguna exaone-moe minicpm5 gemma4 sarvam-moe""".split()


class Llama:
    """libllama with a vocabulary only."""

    class Params(ctypes.Structure):
        _fields_ = [(f"p{i}", ctypes.c_void_p) for i in range(2)] + [(f"n{i}", ctypes.c_int32) for i in range(5)] + [
            (f"q{i}", ctypes.c_void_p) for i in range(4)] + [(f"b{i}", ctypes.c_bool) for i in range(6)]

    def __init__(self):
        libs = common.cache() / "npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
        for name in ("libggml-base.so", "libggml.v0.5.0.so", "libllama.v0.5.0.so"):
            self.lib = ctypes.CDLL(str(libs / name), mode=ctypes.RTLD_GLOBAL)
        self.log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *a: None)
        lib = self.lib
        lib.llama_log_set(self.log, None)
        lib.llama_model_default_params.restype = self.Params
        lib.llama_model_load_from_file.argtypes, lib.llama_model_load_from_file.restype = [ctypes.c_char_p, self.Params], ctypes.c_void_p
        lib.llama_model_get_vocab.argtypes, lib.llama_model_get_vocab.restype = [ctypes.c_void_p], ctypes.c_void_p
        lib.llama_model_free.argtypes = [ctypes.c_void_p]
        flags = [ctypes.c_bool, ctypes.c_bool]
        lib.llama_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32] + flags
        lib.llama_detokenize.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32] + flags
        lib.llama_vocab_is_eog.argtypes, lib.llama_vocab_is_eog.restype = [ctypes.c_void_p, ctypes.c_int32], ctypes.c_bool
        lib.llama_vocab_n_tokens.argtypes = [ctypes.c_void_p]

    def load(self, path):
        params = self.lib.llama_model_default_params()
        params.b0, params.n0 = True, 0
        self.model = self.lib.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise RuntimeError(f"{path} does not load")
        self.vocab = self.lib.llama_model_get_vocab(self.model)

    def free(self):
        self.lib.llama_model_free(self.model)

    def encode(self, text, add, parse):
        data = text.encode()
        room = 4 * len(data) + 16
        ids = (ctypes.c_int32 * room)()
        n = self.lib.llama_tokenize(self.vocab, data, len(data), ids, room, add, parse)
        assert n >= 0
        return list(ids[:n])

    def decode(self, ids, trim, special):
        room = 400 * len(ids) + 64
        buf = ctypes.create_string_buffer(room)
        n = self.lib.llama_detokenize(self.vocab, (ctypes.c_int32 * max(1, len(ids)))(*ids), len(ids), buf, room, trim, special)
        assert n >= 0
        return buf.raw[:n].hex()

    def ends(self):
        return [i for i in range(self.lib.llama_vocab_n_tokens(self.vocab)) if self.lib.llama_vocab_is_eog(self.vocab, i)]

    def answers(self):
        plain = [self.encode(x, False, False) for x in TEXTS]
        parsed = [self.encode(x, True, True) for x in TEXTS]
        return {
            "ids": plain, "parsed": parsed, "ends": self.ends(), "text": [self.decode(i, True, False) for i in parsed],
            "text_special": [self.decode(i, False, True) for i in parsed],
        }


def write_vocab(path, keys):
    sys.path.insert(0, str(common.sources() / "gguf-py"))
    import gguf

    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(1)
    w.add_context_length(16)
    w.add_embedding_length(8)
    w.add_feed_forward_length(8)
    w.add_head_count(1)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(8)
    for key, value in keys.items():
        if isinstance(value, str):
            w.add_string(key, value)
        elif isinstance(value, bool):
            w.add_bool(key, value)
        elif isinstance(value, int):
            w.add_uint32(key, value)
        else:
            w.add_array(key, value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def byte_vocab(doc):
    """GGUF keys of a toy tokenizer, its pre-tokenizer left out."""
    by_id = {v: k for k, v in doc["model"]["vocab"].items()}
    kinds = {i: 1 for i in by_id}
    for a in doc["added_tokens"]:
        by_id[a["id"]], kinds[a["id"]] = a["content"], 3 if a["special"] else 4
    ids = range(max(by_id) + 1)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [by_id[i] for i in ids],
        "tokenizer.ggml.token_type": [kinds[i] for i in ids],
        "tokenizer.ggml.merges": [" ".join(m) for m in doc["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }


def make_run():
    llama, cases = Llama(), []
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "vocab.gguf"
        pre, opt = toys()["gpt-2"]
        byte_keys = byte_vocab(toy("gpt-2", pre, opt))
        pre, opt = toys()["bytes"]
        char_keys = byte_vocab(toy("bytes", pre, opt))
        char_keys["tokenizer.ggml.token_type"][:256] = [6] * 256
        for name in PRES:
            which = "char" if name in ("gemma4", "sarvam-moe") else "byte"
            write_vocab(path, dict(byte_keys if which == "byte" else char_keys, **{"tokenizer.ggml.pre": name}))
            llama.load(path)
            cases.append({"name": name, "vocab": which, "pre": name, **llama.answers()})
            llama.free()
        for name, changes in (
            ("stories", {}), ("stories-plain", {"tokenizer.ggml.add_space_prefix": False}), ("stories-eos", {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": True})
        ):
            keys = spm_vocab()
            keys.update(changes)
            write_vocab(path, keys)
            llama.load(path)
            cases.append({"name": name, "keys": keys, **llama.answers()})
            llama.free()
    save("run.json.gz", {"texts": TEXTS, "byte": byte_keys, "char": char_keys, "cases": cases})


def spm_vocab():
    from sentencepiece import SentencePieceProcessor

    sp = SentencePieceProcessor()
    sp.LoadFromFile(str(REAL / "stories.model"))
    kinds = []
    for i in range(sp.vocab_size()):
        kinds.append(2 if sp.IsUnknown(i) else 3 if sp.IsControl(i) else 6 if sp.IsByte(i) else 1)
    tokens = [sp.IdToPiece(i) for i in range(sp.vocab_size())] + ["<|im_end|>", "MiXeD", "[PAD]"]
    return {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [sp.GetScore(i) for i in range(sp.vocab_size())] + [-1000.0] * 3, "tokenizer.ggml.token_type": kinds + [3, 4, 5],
    }


def make_newer():
    """The library's normal forms around characters whose own are newer than its tables."""
    import unicodedata
    from tokenizers import normalizers

    forms = {f: getattr(normalizers, f)().normalize_str for f in ("NFC", "NFD", "NFKC", "NFKD")}
    newer = set(range(0x10EFD, 0x10F00)) | {0x11F41, 0x11F42, 0x1E08F, 0x11935, 0x11930} | set(range(0x1E4EC, 0x1E4F0)) | set(range(0x1E030, 0x1E06E))  # newer than Python 3.11 too
    for c in (c for c in range(0x110000) if not 0xD800 <= c < 0xE000):
        marked = "a\u0345" + chr(c)
        if 0 < unicodedata.combining(chr(c)) < 240 and forms["NFD"](marked) != unicodedata.normalize("NFD", marked):
            newer.add(c)
        if any(do(chr(c)) != unicodedata.normalize(f, chr(c)) for f, do in forms.items()):
            newer.add(c)
    ends = sorted(c for c in newer if not {c - 1, c + 1} <= newer)
    texts = [t for c in ends for t in ("a\u0345" + chr(c) + "e\u0301", "e\u0323" + chr(c) + "\u0301\u0316", chr(c) + "\u0301\u0316x\u0301")]
    rows = [json.dumps([t, *(do(t) for do in forms.values())], separators=(",", ":")) for t in texts]
    (HERE / "newer.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    steps = sys.argv[1:] or ["hf", "run", "convert", "newer"]
    only = [s.split(":", 1)[1] for s in steps if s.startswith("convert:")]
    if only:
        make_convert(only)
    for step in steps:
        if ":" not in step:
            {"hf": make_hf, "convert": make_convert, "run": make_run, "newer": make_newer}[step]()
