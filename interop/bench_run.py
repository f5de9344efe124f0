"""Times quern run --act q8 beside llama-completion, in turns, and prints the table of docs/benchmarks.md.

    bench_run.py QUERN [--models smollm2,1b] [--types Q8_0,...] [--rounds N] [--threads N] [--prompt N] [--make N] [--folder DIR] [--before CMD]

smollm2 is SmolLM2-135M as setup.sh leaves it; 1b is a llama of 1.07 billion random weights with SmolLM2's vocabulary, 16 layers of 2048 with 32
heads of which 8 have keys and values, made once as F16 in DIR and written one tensor at a time. quern quantizes both. Files lie in DIR, where a
file system in memory (/dev/shm) leaves the disk out of it. Both programs map the file, get the same text and a context of the same size, and keep
keys and values as F16. The speeds are those that the programs print: reading the file and starting are not in them. Of each figure the best
round counts. Peak memory has mapped pages of the file in it for both; the bound is file + keys and values + 10 %, and the exit code is 1 where quern
takes more.

On a machine that does other work, --before 'chrt -r 10' puts both programs before it.
"""

import argparse
import json
import os
import re
import shlex
import sys
import tempfile

import numpy as np

import common

TYPES = ["Q8_0", "Q4_K_M", "Q4_0"]
SHAPE = dict(layers=16, width=2048, ffn=8192, heads=32, kv=8)


def vocabulary(path):
    """The tokenizer keys of a GGUF file, as (name, type, element type, value)."""
    from gguf import GGUFReader, GGUFValueType

    for key, field in GGUFReader(path).fields.items():
        if key.startswith("tokenizer."):
            kind = field.types[0]
            yield key, kind, field.types[-1] if kind == GGUFValueType.ARRAY else None, field.contents()


def synthetic(path, source, layers, width, ffn, heads, kv):
    """A llama file in F16 with normal weights, the same on every machine, written one tensor at a time."""
    import gguf

    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(layers), w.add_context_length(4096), w.add_embedding_length(width), w.add_feed_forward_length(ffn)
    w.add_head_count(heads), w.add_head_count_kv(kv), w.add_layer_norm_rms_eps(1e-5), w.add_rope_dimension_count(width // heads)
    w.add_file_type(1)
    for key, kind, of, value in vocabulary(source):
        if of is not None:
            w.add_array(key, value)
        else:
            w.add_key_value(key, value, kind)
        if key == "tokenizer.ggml.tokens":
            words = len(value)
    w.add_vocab_size(words)
    shapes = {"token_embd.weight": (words, width), "output_norm.weight": (width,)}
    for i in range(layers):
        b = f"blk.{i}."
        shapes |= {b + "attn_norm.weight": (width,), b + "ffn_norm.weight": (width,), b + "attn_q.weight": (width, width),
                   b + "attn_k.weight": (width // heads * kv, width), b + "attn_v.weight": (width // heads * kv, width), b + "attn_output.weight": (width, width),
                   b + "ffn_gate.weight": (ffn, width), b + "ffn_up.weight": (ffn, width), b + "ffn_down.weight": (width, ffn)}
    for name, shape in shapes.items():
        kind = np.float16 if len(shape) > 1 else np.float32
        w.add_tensor_info(name, shape, np.dtype(kind), int(np.prod(shape)) * kind().itemsize)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_ti_data_to_file()
    rng = np.random.Generator(np.random.PCG64(9))
    for name, shape in shapes.items():
        if len(shape) == 1:
            w.write_tensor_data(np.ones(shape, np.float32))
        else:
            w.write_tensor_data((rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)).astype(np.float16))
    w.close()


def apart(job):
    """Runs a function in a process of its own: a child's peak of memory begins with that of its parent."""
    pid = os.fork()
    if pid == 0:
        sys.path.insert(0, str(common.sources() / "gguf-py"))
        job()
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        sys.exit("a model was not made")


def timed(line):
    """Runs a command; gives its output, what it said beside it, and its peak of memory in bytes."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        files = [(os.POSIX_SPAWN_DUP2, out.fileno(), 1), (os.POSIX_SPAWN_DUP2, said.fileno(), 2), (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        pid = os.posix_spawnp(line[0], line, common.environment(), file_actions=files)
        _, status, used = os.wait4(pid, 0)
        texts = []
        for f in (out, said):
            f.seek(0)
            texts.append(f.read().decode("utf-8", "replace"))
        if status != 0:
            sys.exit(f"{' '.join(line)}: status {status}\n{texts[1][-2000:]}")
        return texts[0], texts[1], used.ru_maxrss * 1024


def llama(args, file, text):
    room = args.prompt + args.make + 64
    _, said, peak = timed([*args.before, str(common.tool("llama-completion")), "-m", str(file), "-f", str(text), "-n", str(args.make), "-c", str(room), "-t", str(args.threads),
                           "-no-cnv", "--ignore-eos", "--temp", "0", "--perf", "--no-display-prompt"])
    speed = {}
    for what, name in (("prompt eval time", "prompt"), (" eval time", "make")):
        found = re.search(rf"(?<!prompt){what} =.*?/\s*(\d+) .*?([0-9.]+) tokens per second", said)
        if not found:
            sys.exit(f"llama-completion does not say its {what}:\n{said[-2000:]}")
        speed[name], speed[name + "_n"] = float(found[2]), int(found[1])
    return speed, peak


def quern(args, file, text):
    room = args.prompt + args.make + 64
    out, _, peak = timed([*args.before, str(args.quern.resolve()), "run", str(file), "-p", text.read_text(), "-n", str(args.make), "-c", str(room), "-j", str(args.threads), "--act", "q8",
                          "--ignore-end", "--json"])
    doc = json.loads(out)
    return {"prompt": doc["prompt_tokens_per_second"], "prompt_n": len(doc["prompt_tokens"]), "make": doc["tokens_per_second"]}, peak


def bound(args, file, shape):
    """The file, keys and values of the whole context in F16, and a tenth on top."""
    cache = 2 * 2 * shape["layers"] * shape["kv"] * (shape["width"] // shape["heads"]) * (args.prompt + args.make + 64)
    return (file.stat().st_size + cache) * 1.1


MODELS = {"smollm2": dict(layers=30, width=576, heads=9, kv=3), "1b": SHAPE}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quern", type=common.Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt, about")
    parser.add_argument("--make", type=int, default=64, help="tokens behind it")
    parser.add_argument("--folder", type=common.Path, default=common.cache() / "bench")
    parser.add_argument("--before", type=shlex.split, default=[])
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    smollm2 = common.cache() / "commands/smollm2.f16.gguf"
    text = args.folder / "prompt.txt"
    # a token of it is a word with its space, or a mark
    words = "the miller looked at the old stone and said that it would turn for another year if the rain came , and the river rose .".split()
    text.write_text(" ".join(words[i % len(words)] for i in range(args.prompt)))
    over = []
    print(f"{args.threads} threads, best of {args.rounds}; tokens a second\n")
    print("| model | prompt: llama.cpp | quern | ratio | making: llama.cpp | quern | ratio | peak MiB | | bound |\n|---|---|---|---|---|---|---|---|---|---|")
    for name in args.models.split(","):
        source = smollm2
        if name == "1b":
            source = args.folder / "1b.f16.gguf"
            if not source.exists():
                apart(lambda: synthetic(source, smollm2, **SHAPE))
        for kind in args.types.split(","):
            file = args.folder / f"{name}.{kind}.gguf"
            if not file.exists():
                common.run([args.quern.resolve(), "quantize", "--progress", "none", source, file, kind])
            best, peaks = {}, {}
            for _ in range(args.rounds):
                for who, run in (("llama.cpp", llama), ("quern", quern)):
                    speed, peak = run(args, file, text)
                    old = best.get(who, speed)
                    best[who] = {k: max(speed[k], old[k]) for k in speed}
                    peaks[who] = min(peak, peaks.get(who, peak))
            a, b = best["llama.cpp"], best["quern"]
            if a["prompt_n"] != b["prompt_n"]:
                sys.exit(f"{file}: {a['prompt_n']} tokens of the prompt in llama.cpp, {b['prompt_n']} in quern")
            limit = bound(args, file, MODELS[name])
            if peaks["quern"] > limit:
                over.append(f"{name} {kind}: {(peaks['quern'] - limit) / 2**20:.1f} MiB")
            print(f"| {name} {kind} | {a['prompt']:.0f} | {b['prompt']:.0f} | {b['prompt'] / a['prompt']:.2f} | {a['make']:.1f} | {b['make']:.1f} | {b['make'] / a['make']:.2f} "
                  f"| {peaks['llama.cpp'] / 2**20:.0f} | {peaks['quern'] / 2**20:.0f} | {limit / 2**20:.0f} |", flush=True)
    if over:
        sys.exit("over the bound: " + ", ".join(over))


if __name__ == "__main__":
    main()
