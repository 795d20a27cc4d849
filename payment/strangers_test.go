package payment

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/x402"
)

// TestStrangersShareOneBudget: however many calls the addresses of an attacker make, they cause at the facilitator and the blockchain
// endpoint what the budget allows. Another client gets its share all the time, and what is paid takes nothing.
func TestStrangersShareOneBudget(t *testing.T) {
	t.Parallel()
	at := func(address string) *Attempt { return &Attempt{Address: netip.MustParsePrefix(address)} }
	admitted := func(e *Engine, a *Attempt, tokens int) bool { return e.takeTokens(a, tokens) == nil }
	newEngine := func() *Engine { return &Engine{strangers: newStrangers(), payers: newPayers()} }
	synctest.Test(t, func(t *testing.T) {
		e, attacks := newEngine(), 0
		const seconds = 60
		for second := range seconds {
			for call := range 20 {
				for address := range 6 {
					if admitted(e, at(fmt.Sprintf("198.51.100.%d/32", address)), 1+call%2*(facilitatorCost-1)) {
						attacks++
					}
				}
			}
			if second%5 == 0 && !admitted(e, at("192.0.2.1/32"), 1) {
				t.Errorf("after %d s a client at another address is refused", second)
			}
			time.Sleep(time.Second)
		}
		if most := strangersBurst + seconds*strangersPerSecond; attacks > most {
			t.Errorf("the attacker is admitted %d times in %d s, want at most %d", attacks, seconds, most)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		e, sites := newEngine(), 0
		for address := range 1000 {
			if admitted(e, at(fmt.Sprintf("2001:db8:0:%x::/64", address)), 1) {
				sites++
			}
		}
		time.Sleep(10 * time.Second)
		if sites > strangersBurst || !admitted(e, at("2001:db8:1::/64"), facilitatorCost) {
			t.Errorf("a /48 is admitted %d times, want at most %d, and then another /48", sites, strangersBurst)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		e, caller := newEngine(), &Caller{Account: uuid.New(), KeyHash: []byte("key")}
		for range 10 * strangersBurst {
			paying := at("198.51.100.1/32")
			if !admitted(e, paying, 1) || !admitted(e, paying, facilitatorCost) || !admitted(e, paying, facilitatorCost) {
				t.Fatal("a client whose calls are paid is refused")
			}
			e.Paid(paying)
		}
		for admitted(e, at("198.51.100.1/32"), 1) { // until its tokens are used up
		}
		account := at("198.51.100.1/32")
		account.Caller = caller
		if admitted(e, account, 1) {
			t.Error("an account that has not paid has a share beside its address")
		}
		e.payers.settled("0x01", caller)
		for n := byte(0); e.strangers.all.Tokens() >= 1; n++ { // strangers at many addresses use up the budget
			admitted(e, &Attempt{Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, n}), 32)}, 1)
		}
		for range shareBurst {
			if account.taken = 0; !admitted(e, account, 1) {
				t.Fatal("an account that paid lately has no share beside the budget")
			}
		}
		if account.taken = 0; admitted(e, account, 1) {
			t.Error("an account that used up its share is admitted although the budget is used up")
		}
	})
}

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
