#!/bin/sh
# Builds the same recipes with differently compiled binaries and different
# numbers of jobs, and demands the same bytes of all of them, and the same
# logits of what was built and of the models it was built from.
#
# A binary for another processor runs under qemu-user (qemu-aarch64).
set -eu
GO=${GO:-go}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { # name, then environment and flags
	name=$1
	shift
	env CGO_ENABLED=0 "$@" -o "$work/$name" ./internal/scripts/builder
	env CGO_ENABLED=0 "$@" -o "$work/$name.logits" ./internal/scripts/logits
}
build amd64 GOARCH=amd64 "$GO" build
build v3 GOARCH=amd64 GOAMD64=v3 "$GO" build
build noasm GOARCH=amd64 "$GO" build -tags noasm
build arm64 GOARCH=arm64 "$GO" build
build arm64-noasm GOARCH=arm64 "$GO" build -tags noasm

run() { # binary jobs memory
	out="$work/out.$1.$2.$3"
	mkdir -p "$out"
	prefix=
	case $1 in arm64*) prefix="qemu-aarch64" ;; esac
	builder="$prefix $work/$1 -o $out -jobs $2 -memory $3"
	$builder testdata/acceptance/gguf*.yaml testdata/acceptance/kmcu*.yaml testdata/digests/*.yaml
	$builder -set "sources.base.file=$PWD/testdata/cact/needle2-a.safetensors" testdata/acceptance/needle*.yaml
	(cd "$out" && find . -type f | LC_ALL=C sort | xargs sha256sum) >"$work/sums.$1.$2.$3"
	find "$out" -name '*.gguf' -o -name '*.kmcu' -o -name '*.cact' | LC_ALL=C sort |
		xargs $prefix "$work/$1.logits" -jobs "$2" testdata/models/stories* testdata/cact/*.cact testdata/golden/runtime/*.gguf testdata/golden/kmcu/*.kmcu >>"$work/sums.$1.$2.$3"
}
native=$("$GO" env GOHOSTARCH)
if [ "$native" != amd64 ]; then
	echo "digests: made for an amd64 machine, this is $native" >&2
	exit 1
fi
command -v qemu-aarch64 >/dev/null || {
	echo "digests: qemu-aarch64 is missing (package qemu-user)" >&2
	exit 1
}
run amd64 1 64MiB
for n in 2 7; do run amd64 $n 4GiB; done
for b in v3 noasm arm64; do
	for n in 1 2 7; do run $b $n 64MiB; done
done
run arm64-noasm 2 64MiB
fail=0
for s in "$work"/sums.*; do
	if ! cmp -s "$work/sums.amd64.1.64MiB" "$s"; then
		echo "digests differ: ${s##*/sums.}" >&2
		diff "$work/sums.amd64.1.64MiB" "$s" >&2 || true
		fail=1
	fi
done
n=$(wc -l <"$work/sums.amd64.1.64MiB")
[ "$n" -ge 16 ] || { echo "digests: only $n files and sets of logits" >&2; exit 1; }
[ $fail -eq 0 ] && echo "digests: $n files and sets of logits, the same from $(ls "$work"/sums.* | wc -l) builds"
exit $fail
