package payment

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
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
