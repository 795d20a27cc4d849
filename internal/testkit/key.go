package testkit

import (
	"fmt"
	"hash/crc32"
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
