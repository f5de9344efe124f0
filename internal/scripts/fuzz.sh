#!/bin/sh
# Runs every fuzz target of the module for FUZZTIME each, one after the other. A
# package's test binary is built once, instrumented, for all its targets.
set -eu
GO=${GO:-go}
FUZZTIME=${FUZZTIME:-10s}
root=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u >"$work/packages"
count=0
while read -r pkg; do
	"$GO" test -c -fuzz . -o "$work/fuzz.test" "$pkg"
	grep -h '^func Fuzz' "$pkg"/*_test.go | sed 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/' | sort >"$work/targets"
	while read -r target; do
		if ! (cd "$pkg" && "$work/fuzz.test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$FUZZTIME" \
			-test.fuzzminimizetime 100x -test.fuzzcachedir "$work/cache" -test.parallel 2) </dev/null >"$work/log" 2>&1; then
			echo "fuzz $pkg $target failed"
			cat "$work/log"
			exit 1
		fi
		echo "fuzz $pkg $target: $(grep -o 'execs: [0-9]*' "$work/log" | tail -n 1)"
		count=$((count + 1))
	done <"$work/targets"
done <"$work/packages"
echo "fuzz: $count targets, $FUZZTIME each, no finding"
