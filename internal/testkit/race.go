//go:build race

package testkit

// Times returns how often a test repeats something that it does n times without the race detector. The detector makes it several times
// slower, and finds a race in the first repetitions or not at all.
func Times(n int) int { return (n + 3) / 4 }
