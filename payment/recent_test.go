package payment

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
)

// TestPayersAreForgotten: for ten minutes after a payment that settled.
func TestPayersAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		payers := newPayers()
		const wallet = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
		if payers.paidLately(wallet) != 0 {
			t.Error("a wallet that never paid has settled lately")
		}
		account := uuid.New()
		payers.settled(wallet, &Caller{Account: account, KeyHash: []byte("hash")})
		if payers.paidLately(strings.ToLower(wallet)) == 0 {
			t.Error("a wallet that has just paid has not settled lately")
		}
		if got, ok := payers.accounts.Get("hash"); !ok || got != account {
			t.Errorf("a key that has just paid belongs to %v %v, want %v", got, ok, account)
		}
		time.Sleep(PaidFor)
		if payers.paidLately(wallet) != 0 {
			t.Error("a wallet that paid ten minutes ago has settled lately")
		}
		if _, ok := payers.accounts.Get("hash"); ok {
			t.Error("a key that paid ten minutes ago has paid lately")
		}
	})
}

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
