"""Times quern quantize beside llama.cpp's llama_model_quantize over one large file, in turns, and prints the table of docs/benchmarks.md.

    bench_quantize.py QUERN [--types Q4_K_M,...] [--rounds N] [--threads N] [--folder DIR]

The model is a llama of 410 million random weights in F16, made once in the cache folder. Files lie in DIR, where a file system in memory
(/dev/shm) leaves the disk out of it. Both tools run as processes of their own, each writes a whole file, and the files are compared. Of each
figure the best round counts: wall seconds, processor seconds, and the peak of resident memory, mapped input pages included for both.
"""

import argparse
import hashlib
import os
import sys
import time

import numpy as np

import common

TYPES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_NL", "IQ4_XS"]
MATRIX = ["Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_XS", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_S"]
SHAPE = dict(layers=24, width=1024, ffn=3584, heads=16, vocab=32000)


def model(path, **shape):
    """A llama file in F16 with normal weights, the same on every machine."""
    sys.path.insert(0, str(common.sources() / "gguf-py"))
    import gguf

    rng = np.random.Generator(np.random.PCG64(7))
    w = gguf.GGUFWriter(path, "llama")
    d, f = shape["width"], shape["ffn"]
    w.add_block_count(shape["layers"]), w.add_context_length(2048), w.add_embedding_length(d), w.add_feed_forward_length(f)
    w.add_head_count(shape["heads"]), w.add_head_count_kv(shape["heads"]), w.add_layer_norm_rms_eps(1e-5), w.add_rope_dimension_count(d // shape["heads"])
    w.add_vocab_size(shape["vocab"]), w.add_file_type(1)
    w.add_tokenizer_model("llama"), w.add_token_list([f"t{i}" for i in range(shape["vocab"])])
    w.add_token_scores([0.0] * shape["vocab"]), w.add_token_types([1] * shape["vocab"])

    def add(name, *dims):
        if len(dims) == 1:
            w.add_tensor(name, np.ones(dims, np.float32))
        else:
            w.add_tensor(name, (rng.standard_normal(dims, dtype=np.float32) * np.float32(0.02)).astype(np.float16))

    add("token_embd.weight", shape["vocab"], d), add("output_norm.weight", d), add("output.weight", shape["vocab"], d)
    for i in range(shape["layers"]):
        b = f"blk.{i}."
        add(b + "attn_norm.weight", d), add(b + "ffn_norm.weight", d)
        for n in ("q", "k", "v", "output"):
            add(f"{b}attn_{n}.weight", d, d)
        add(b + "ffn_gate.weight", f, d), add(b + "ffn_up.weight", f, d), add(b + "ffn_down.weight", d, f)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file()
    w.close()


def matrix(path, **shape):
    """An importance matrix for it, in the older format."""
    rng = np.random.Generator(np.random.PCG64(8))
    entries = []
    for i in range(shape["layers"]):
        for n in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            entries.append((f"blk.{i}.{n}.weight", shape["ffn"] if n == "ffn_down" else shape["width"]))
    with open(path, "wb") as f:
        f.write(np.int32(len(entries)).tobytes())
        for name, n in sorted(entries):
            f.write(np.int32(len(name)).tobytes() + name.encode() + np.int32(10).tobytes() + np.int32(n).tobytes())
            f.write((rng.random(n, dtype=np.float32) * np.float32(10) + np.float32(0.1)).tobytes())


def timed(args, out):
    """Runs a command that writes a file; gives wall and processor seconds, peak KiB and the file's digest."""
    if out.exists():
        out.unlink()
    start = time.monotonic()
    pid = os.posix_spawn(args[0], args, dict(os.environ), file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)])
    _, status, used = os.wait4(pid, 0)
    wall = time.monotonic() - start
    if status != 0:
        sys.exit(f"{' '.join(args)}: status {status}")
    with open(out, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss, digest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quern", type=common.Path)
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--matrix", default=",".join(MATRIX), help="types with an importance matrix")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=common.Path, default=common.cache() / "bench")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    source, im, out = args.folder / "bench.f16.gguf", args.folder / "bench.imatrix", args.folder / "out.gguf"
    if not source.exists():
        # in a process of its own: a child's peak begins with that of its parent
        if os.fork() == 0:
            model(source, **SHAPE)
            os._exit(0)
        if os.wait()[1] != 0:
            sys.exit("the model was not made")
    matrix(im, **SHAPE)
    weights = source.stat().st_size / 2e6
    print(f"{weights:.0f} M weights, {args.threads} threads, best of {args.rounds}\n")
    print("| type | llama.cpp s | quern s | faster | processor s | | faster | peak MiB | |\n|---|---|---|---|---|---|---|---|---|")
    cases = [(t, []) for t in args.types.split(",") if t] + [(t, ["--imatrix", str(im)]) for t in args.matrix.split(",") if t]
    different = 0
    for ftype, options in cases:
        best = {}
        for _ in range(args.rounds):
            for who, line in (("llama.cpp", [str(common.tool("llama-quantize")), *options, str(source), str(out), ftype, str(args.threads)]),
                              ("quern", [str(args.quern.resolve()), "quantize", "--progress", "none", "--jobs", str(args.threads), *options, str(source), str(out), ftype])):
                got = timed(line, out)
                old = best.get(who, got)
                best[who] = (min(got[0], old[0]), min(got[1], old[1]), min(got[2], old[2]), got[3])
        a, b = best["llama.cpp"], best["quern"]
        mark = "" if a[3] == b[3] else " **different bytes**"
        different += a[3] != b[3]
        name = ftype + (" with matrix" if options else "")
        print(f"| {name} | {a[0]:.2f} | {b[0]:.2f} | {a[0] / b[0]:.1f} | {a[1]:.1f} | {b[1]:.1f} | {a[1] / b[1]:.1f} | {a[2] / 1024:.0f} | {b[2] / 1024:.0f} |{mark}", flush=True)
    out.unlink(missing_ok=True)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
