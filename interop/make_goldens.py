"""Runs the real converter and the real llama-quantize over models and writes what they made as testdata/convert/MODEL.json.

    make_goldens.py [--only-convert] FOLDER...

A model's folder name is part of the result (general.name and its like come from it), so folders keep their names.
"""

import argparse
import hashlib
import json
import shutil
from pathlib import Path

import common
import ggufview

# Further runs of the converter, beside one for each outtype.
MORE = {name: [["--outtype", "f16", "--no-mtp"], ["--outtype", "q8_0", "--mtp"]] for name in ("tiny-qwen35", "tiny-qwen35-even")}


def _entry(tool, args, source, path):
    entry = {"file": path.name, "tool": tool, "args": args}
    if source:
        entry["from"] = source
    entry.update(ggufview.summary(path))
    return entry


def _dump(doc):
    """JSON with one key or tensor a line: small, and a diff of two goldens can be read."""
    line = lambda v: json.dumps(v, ensure_ascii=False, separators=(",", ":"))
    head = {k: v for k, v in doc.items() if k != "outputs"}
    parts = []
    for out in doc["outputs"]:
        fields = ",\n  ".join(f'"{k}":{line(v)}' for k, v in out.items() if k not in ("kv", "tensors"))
        lists = "".join(',\n  "%s":[\n   %s\n  ]' % (k, ",\n   ".join(map(line, out[k]))) for k in ("kv", "tensors"))
        parts.append(" {" + fields + lists + "\n }")
    return line(head)[:-1] + ',\n"outputs":[\n' + ",\n".join(parts) + "\n]}\n"


def goldens(folder, only_convert=False):
    name = folder.name
    out = common.cache() / "out" / name
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    inputs = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.iterdir()) if f.is_file()}
    doc = {"model": name, "inputs": inputs, "outputs": []}
    for kind in common.OUTTYPES:
        path = out / f"{name}.{kind}.gguf"
        common.convert(folder, path, "--outtype", kind)
        doc["outputs"].append(_entry("convert_hf_to_gguf.py", ["--outtype", kind], None, path))
    for args in MORE.get(name, []):
        path = out / f"{name}.{args[1]}{args[2].removeprefix('-')}.gguf"
        common.convert(folder, path, *args)
        doc["outputs"].append(_entry("convert_hf_to_gguf.py", args, None, path))
    if not only_convert:
        source = out / f"{name}.f16.gguf"
        for kind in common.QUANTIZE:
            for pure in ([], ["--pure"]):
                path = out / f"{name}.f16.{kind}{'.pure' if pure else ''}.gguf"
                common.quantize(source, path, kind, *pure)
                doc["outputs"].append(_entry("llama-quantize", [*pure, kind], source.name, path))
    target = common.GOLDENS / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(_dump(doc), encoding="utf-8")
    json.loads(target.read_text(encoding="utf-8"))
    print(f"{target.relative_to(common.PROJECT)}: {len(doc['outputs'])} outputs, {target.stat().st_size} bytes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only-convert", action="store_true", help="leave llama-quantize out")
    parser.add_argument("folders", nargs="+", type=Path)
    args = parser.parse_args()
    for folder in args.folders:
        goldens(folder.resolve(), args.only_convert)


if __name__ == "__main__":
    main()
