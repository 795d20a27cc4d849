package testkit

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// KeyFile writes a new key, 64 hex digits, to a file and returns its name.
func KeyFile(t testing.TB) string {
	t.Helper()
	var key [32]byte
	_, _ = rand.Read(key[:])
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%x\n", key), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
