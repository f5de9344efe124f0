// Command fmacheck runs the fmacheck analyzer over packages.
package main

import (
	"golang.org/x/tools/go/analysis/singlechecker"

	"quern/internal/fmacheck"
)

func main() { singlechecker.Main(fmacheck.Analyzer) }
