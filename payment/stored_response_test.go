package payment

import (
	"strings"
	"testing"

	"github.com/parley-chat/parley/store"
)

// TestReadsAreNotKept: the stored response of a read, of any length and content, is one that the ledger erases after an hour, and is read
// as it was. A short one of another operation is kept.
func TestReadsAreNotKept(t *testing.T) {
	t.Parallel()
	for length := range 2000 {
		for _, text := range []string{strings.Repeat("a", length), strings.Repeat("abcdefg", length)[:length]} {
			response := `{"` + text + `"}`
			for _, read := range []bool{true, false} {
				stored := encodeStored([]byte(response), read)
				if read && len(stored) <= store.ShortResponse {
					t.Fatalf("a read of %d bytes is stored in %d", len(response), len(stored))
				}
				if got, err := decodeStored(stored); err != nil || string(got) != response {
					t.Fatalf("a response of %d bytes is read as %q, %v", len(response), got, err)
				}
			}
		}
	}
	if stored := encodeStored([]byte(`{"`+strings.Repeat("a", 480)+`"}`), false); len(stored) > store.ShortResponse {
		t.Errorf("484 bytes of another operation are stored in %d", len(stored))
	}
}
