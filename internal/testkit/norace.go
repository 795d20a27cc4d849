//go:build !race

package testkit

// Times returns n. With the race detector it returns less.
func Times(n int) int { return n }
