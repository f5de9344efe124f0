//go:build !race

package all_test

const racing = false
