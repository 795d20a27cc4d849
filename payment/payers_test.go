package payment

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPayersAreForgotten: for ten minutes after a payment that settled.
func TestPayersAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		payers := newPayers()
		const wallet = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
		if payers.settledLately(wallet) {
			t.Error("a wallet that never paid has settled lately")
		}
		payers.settled(wallet)
		if !payers.settledLately(strings.ToLower(wallet)) {
			t.Error("a wallet that has just paid has not settled lately")
		}
		time.Sleep(paidFor)
		if payers.settledLately(wallet) {
			t.Error("a wallet that paid ten minutes ago has settled lately")
		}
	})
}
