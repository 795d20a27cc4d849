package testkit

import (
	"strings"
	"testing"
)

// Contains fails the test for each part that a text lacks.
func Contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}
