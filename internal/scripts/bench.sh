#!/bin/sh
# Whole-process figures: time and peak memory of a build from a sparse 8 GiB
# checkpoint, beside SHA-256 of the same file. Needs 6 GB of disk in TMPDIR.
set -eu
GO=${GO:-go}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$GO" run ./internal/scripts/sparse "$work/big" 8
cp testdata/models/stories260k/tokenizer* "$work/big/"
cat >"$work/big.yaml" <<RECIPE
version: 1
name: big
sources: {base: {dir: big}}
steps: [{convert: {outtype: f32}}, {quantize: {type: Q8_0}}]
outputs: [{format: gguf, file: big.gguf}]
RECIPE
timed() { # label, command...
	label=$1
	shift
	/usr/bin/time -f "$label: %e s, %U s user, %S s system, peak %M KiB" "$@" >/dev/null
}
timed "sha256 of the source" sha256sum "$work/big/model.safetensors"
timed "plan" ./quern plan "$work/big.yaml" --no-store
timed "build, --memory 256MiB, without a store" ./quern build "$work/big.yaml" -o "$work/out" --no-store --memory 256MiB --progress none --measure never
rm -rf "$work/out"
timed "build, --memory 256MiB, with a store" ./quern build "$work/big.yaml" -o "$work/out" --store "$work/store" --memory 256MiB --progress none --measure never
timed "build again, nothing changed" ./quern build "$work/big.yaml" -o "$work/out" --store "$work/store" --memory 256MiB --progress none --measure never
