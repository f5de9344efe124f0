//go:build !linux && !darwin

package main

// peakMemory is 0: unknown.
func peakMemory() int64 { return 0 }
