package testkit

import (
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
)

// UnknownKey returns a well-formed API key that no account has. Keys with different numbers differ.
func UnknownKey(number int) string {
	const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	key := fmt.Sprintf("parley_%043d", number)
	check := make([]byte, 6)
	for n, at := uint64(crc32.ChecksumIEEE([]byte(key))), 5; at >= 0; n, at = n/62, at-1 {
		check[at] = base62[n%62]
	}
	return key + string(check)
}

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
