package main

import (
	"testing"

	"quern/internal/asm/asmtest"
)

// TestGenerated: what is checked in is what the generator writes.
func TestGenerated(t *testing.T) { asmtest.Generated(t) }
