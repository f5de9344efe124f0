#!/bin/sh
# Runs every fuzz target of the module for FUZZTIME each, one after the other.
set -eu
GO=${GO:-go}
FUZZTIME=${FUZZTIME:-10s}
grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do
	pkg=$(dirname "$file")
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
		echo "fuzz $pkg $target"
		"$GO" test "$pkg" -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" -parallel 2 >/tmp/quern-fuzz.$$ 2>&1 || {
			cat /tmp/quern-fuzz.$$
			exit 1
		}
		tail -n 2 /tmp/quern-fuzz.$$ | head -n 1
	done
done
rm -f /tmp/quern-fuzz.$$
