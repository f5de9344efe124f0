package main

import (
	"flag"
	"os"

	"github.com/mmcloughlin/avo/buildtags"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"

	"quern/tensor/quant/_gen/neon"
)

var (
	neonOut   = flag.String("neon", "", "assembly output for arm64")
	neonStubs = flag.String("neonstubs", "", "go stub file for arm64")
)

// bounds are registers that are marked by bound.
var bounds = map[reg.ID]bool{}

// bound says that a register never holds zero nor what is no number, so that
// NEON's own minimum and maximum do.
func bound(v ...reg.Register) {
	for _, r := range v {
		bounds[r.ID()] = true
	}
}

// alsoNEON translates the functions before avo compiles them.
func alsoNEON() {
	pass.Compile = pass.Concat(pass.Func(writeNEON), pass.Compile)
}

func writeNEON(f *ir.File) error {
	if *neonOut == "" {
		return nil
	}
	a, err := neon.Translate(f, bounds)
	if err != nil {
		return err
	}
	config := printer.NewGoRunConfig()
	config.Pkg = "quant"
	if err := os.WriteFile(*neonOut, a.Print(config.GeneratedWarning(), "arm64 && !noasm"), 0o644); err != nil {
		return err
	}
	only, err := buildtags.ParseConstraint("arm64,!noasm")
	if err != nil {
		return err
	}
	stubs := &ir.File{Constraints: buildtags.Constraints{only}}
	for _, fn := range a.Functions() {
		stubs.AddSection(fn)
	}
	text, err := printer.NewStubs(config).Print(stubs)
	if err != nil {
		return err
	}
	return os.WriteFile(*neonStubs, text, 0o644)
}
