package payment

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-chat/parley/x402"
)

// codeChain is a chain on which addresses that end in "c" are contracts.
type codeChain struct {
	Chain // nothing else is asked
	calls int
}

func (c *codeChain) HasCode(_ context.Context, address string) (bool, error) {
	c.calls++
	return address[len(address)-1] == 'c', nil
}

// TestWalletsAreRemembered: a contract for ten minutes, any other address for one, in either case of letters, and never
// more than 10,000 of them.
func TestWalletsAreRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		chain := &codeChain{}
		e := &Engine{Chain: chain, contracts: NewRecent[string, bool](maxWallets), strangers: newStrangers(), payers: newPayers()}
		check := func(address string, want bool, calls int) {
			t.Helper()
			payload := &x402.PaymentPayload{}
			payload.Payload.Authorization.From = address
			a := &Attempt{payload: payload}
			if got, err := e.isContract(t.Context(), a); err != nil || got != want || chain.calls != calls {
				t.Errorf("%s: contract %v after %d calls (%v), want %v after %d", address, got, chain.calls, err, want, calls)
			}
			e.Paid(a)
		}
		check("0xABC", true, 1)
		check("0xabC", true, 1)
		check("0xabd", false, 2)
		time.Sleep(plainFor - time.Second)
		check("0xabd", false, 2)
		time.Sleep(time.Second)
		check("0xabd", false, 3)
		check("0xabc", true, 3)
		time.Sleep(contractFor)
		check("0xabc", true, 4)
		for i := range maxWallets + 100 {
			check(fmt.Sprintf("0x%dd", i), false, 5+i)
		}
		if got := e.contracts.entries.Len(); got != maxWallets {
			t.Errorf("%d addresses are remembered, want %d", got, maxWallets)
		}
	})
}
