package fmacheck_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"quern/internal/fmacheck"
)

func TestAnalyzer(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), fmacheck.Analyzer, "a")
}
