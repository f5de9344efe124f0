"""Experts last and ordered by use, in llama.cpp.

    check_reorder.py path/to/quern

quern builds the story model with experts plainly, and with `reorder: {experts: last, by: ...}` by an importance matrix of its own making. llama.cpp loads
both files, tells the same story with both, and gives the same perplexity.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import common

RECIPE = """version: 1
name: reorder
sources:
  base: {{dir: "{model}"}}
  text: {{file: "{text}"}}
steps:
  - pad: {{ffn: 32}}
  - imatrix: {{id: use, text: text, context: 64, chunks: 40}}
  - quantize: {{type: Q8_0, rules: [{{match: _exps, type: Q4_0}}], imatrix: use}}
{reorder}outputs:
  - {{format: gguf, file: {name}.gguf}}
"""


def build(quern, folder, name, reorder):
    recipe = folder / f"{name}.yaml"
    recipe.write_text(RECIPE.format(model=common.TESTDATA / "models/stories-moe", text=common.TESTDATA / "text/eval-stories.txt", reorder=reorder, name=name))
    common.run([quern, "build", recipe, "-o", folder, "--no-store"])
    return folder / f"{name}.gguf"


def story(path):
    text = common.run([common.tool("llama-completion"), "-m", path, "-p", "Once upon a time", "-n", "60", "--temp", "0", "-no-cnv", "-t", "1", "--no-perf"],
                      stdin=subprocess.DEVNULL)
    return re.split(r"\n+[0-9.]+ I ", text[text.rindex("Once upon a time"):])[0].strip()


def perplexity(path):
    # The tool may end before its last lines are out.
    for _ in range(9):
        text = common.run([common.tool("llama-perplexity"), "-m", path, "-f", common.TESTDATA / "text/eval-stories.txt", "-c", "128", "--chunks", "8", "-t", "1"],
                          stdin=subprocess.DEVNULL)
        if found := re.search(r"Final estimate: PPL = ([0-9.]+)", text):
            return float(found.group(1))
    raise RuntimeError(f"llama-perplexity gives no result for {path}")


def main():
    quern = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        plain = build(quern, folder, "plain", "")
        moved = build(quern, folder, "moved", "  - reorder: {experts: last, align: 16KiB, by: use}\n")
        told = story(plain)
        again = story(moved)
        # The last letters may be missing: the tool may end before they are out.
        length = min(len(told), len(again))
        assert length > 100 and told[:length] == again[:length], (told, again)
        a, b = perplexity(plain), perplexity(moved)
        assert abs(a - b) <= 1e-4 * a, (a, b)
        print(f"the same story, {length} characters; perplexity {a} and {b}")


if __name__ == "__main__":
    main()
