"""Stands in for quern in check_test.py: takes the same command line and lets the real tools do the work, or spoils it on purpose.

QUERN_STANDIN=spoil-data changes one byte of a tensor, spoil-key one byte of a key, spoil-run the scale of the last norm; refuse exits as for an unknown step.
"""

import json
import os
import sys
from pathlib import Path

import common


def main():
    assert sys.argv[1] == "build" and sys.argv[3] == "-o", sys.argv
    recipe = json.loads(Path(sys.argv[2]).read_text())
    out = Path(sys.argv[4])
    out.mkdir(parents=True)
    spoil = os.environ.get("QUERN_STANDIN", "")
    steps = {k: v for s in recipe["steps"] for k, v in s.items()}
    if spoil == "refuse" or set(steps) - {"convert", "quantize"}:
        print("unknown step", file=sys.stderr)
        return 2
    target = out / recipe["outputs"][0]["file"]
    outtype = steps.get("convert", {}).get("outtype", "f16")
    q = steps.get("quantize")
    first = out / "converted.gguf" if q else target
    common.convert(recipe["sources"]["base"]["dir"], first, "--outtype", outtype)
    if q:
        pure = ["--pure"] if q.get("pure") or "type" in q else []
        common.quantize(first, target, q.get("preset") or q["type"], *pure)
    data = bytearray(target.read_bytes())
    if spoil == "spoil-data":
        data[-40] ^= 1
    if spoil == "spoil-key":
        at = data.index(b"general.file_type") + len(b"general.file_type") + 4
        data[at] ^= 1
    if spoil == "spoil-run":
        # the data ends with output_norm.weight, float32: swap halves of it
        data[-256:] = data[-128:] + data[-256:-128]
    target.write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
