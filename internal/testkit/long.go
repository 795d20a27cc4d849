package testkit

import (
	"os"
	"testing"
)

// all is whether the long tests run too: `make test-all` sets PARLEY_TEST_ALL, `make test` does not.
var all = os.Getenv("PARLEY_TEST_ALL") != ""

// Long skips a test that takes long, unless all tests run.
func Long(t testing.TB) {
	t.Helper()
	if !all {
		t.Skip("a long test: `make test-all` runs it")
	}
}

// Times returns how often a test repeats something that it does n times when all tests run.
func Times(n int) int {
	if all && !raceDetector {
		return n
	}
	return (n + 3) / 4
}
