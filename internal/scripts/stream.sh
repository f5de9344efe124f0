#!/bin/sh
# A mixture of experts that exists nowhere, from a hub through Q2_K experts to a
# receiving process: time beside the slowest link, peak memory, disk.
#
#   GIB=20 RATE=100000000 sh internal/scripts/stream.sh
#
# RATE is the hub's in bytes a second, 0 for none: then the quantizer is the
# slowest link, and its speed from memory to nowhere is to be compared with.
set -eu
GO=${GO:-go}
GIB=${GIB:-20}
RATE=${RATE:-100000000}
work=$(mktemp -d)
pids=
trap 'exec 8>&- 9>&-; kill $pids 2>/dev/null || true; rm -rf "$work"' EXIT
"$GO" build -o "$work/stream" ./internal/scripts/stream
mkfifo "$work/in1" "$work/in2"
"$work/stream" hub -gib "$GIB" -rate "$RATE" <"$work/in1" >"$work/hub" &
pids="$pids $!"
exec 8>"$work/in1"
"$work/stream" receive <"$work/in2" >"$work/receiver" 8>&- &
pids="$pids $!"
exec 9>"$work/in2"
while [ ! -s "$work/hub" ] || [ ! -s "$work/receiver" ]; do sleep 1; done
read -r endpoint size <"$work/hub"
read -r target <"$work/receiver"
cat >"$work/moe.yaml" <<RECIPE
version: 1
name: moe
sources: {base: {hf: synthetic/moe@main}}
steps: [{quantize: {type: Q8_0, rules: [{role: experts, type: Q2_K}]}}]
outputs: [{format: gguf, file: moe.gguf, to: '$target/'}]
RECIPE
mkdir "$work/disk"
export XDG_CACHE_HOME="$work/disk" HF_HOME="$work/disk/hf" TMPDIR="$work/disk" HF_ENDPOINT="$endpoint"
start=$(date +%s.%N)
/usr/bin/time -f 'peak memory %M KiB, %e s, %U s user, %S s system' ./quern build "$work/moe.yaml" -o "$work/disk" \
	--store "$work/disk/store" --memory "${MEMORY:-256MiB}" --progress "${PROGRESS:-none}" >"$work/out"
end=$(date +%s.%N)
cat "$work/out" "$work/receiver"
du -sk "$work/disk" | awk '{print "disk used " $1 " KiB"}'
echo "$start $end $size $RATE" | awk '{s = $2 - $1; printf "source %.0f bytes in %.1f s: %.1f MB/s", $3, s, $3 / s / 1e6; if ($4 > 0) printf ", %.3f of the cap", $3 / s / $4; print ""}'
