package mem_test

import (
	"testing"

	"quern/artifacts"
	"quern/artifacts/mem"
	"quern/artifacts/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Suite{Open: func(*testing.T) artifacts.Store { return mem.New() }}.Run(t)
}
