package service

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// opened is a payment channel of an agent that was charged for some messages.
func (a *agent) opened(to *agent, messages uint64) *x402.ChannelSigner {
	a.w.T.Helper()
	payer := a.w.channelPayer(a.Wallet)
	deposit := uint64(100_000)
	for n := uint64(1); n <= messages; n++ {
		if reply := a.sendWith(payer.sign(sendPath, 5000*n, deposit), to, a.Name+" writes"); reply.Status != 200 {
			a.w.T.Fatal(reply)
		}
		deposit = 0
	}
	return payer.signer(sendPath)
}

// due makes everything unclaimed old enough to be claimed.
func (w *world) due() {
	w.Exec(`UPDATE payment_channels SET unclaimed_since = now() - interval '7 hours', claim_after = NULL WHERE unclaimed_since IS NOT NULL`)
}

// TestClaimWithABadRow: a voucher that the chain rejects does not hold up the others.
func TestClaimWithABadRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	alices, bobs, carols := alice.opened(bob, 1), bob.opened(alice, 1), carol.opened(alice, 2)
	testkit.NoError(t, w.Ledger.InitiateWithdraw(carols.Config, 100_000))
	w.Ledger.Advance(25 * time.Hour)
	if _, err := w.Ledger.FinalizeWithdraw(carols.Config); err != nil {
		t.Fatal(err)
	}
	w.due()
	claimed := func() bool {
		return w.Ledger.Channel(alices.ID).TotalClaimed == 5000 && w.Ledger.Channel(bobs.ID).TotalClaimed == 5000 &&
			w.Ledger.Received(devnet.Payee).Settled == 10_000
	}
	if !w.recoverUntil(claimed) {
		t.Errorf("the others are not claimed: %+v %+v", w.Ledger.Channel(alices.ID), w.Ledger.Channel(bobs.ID))
	}
	if n := w.Count(`SELECT count(*) FROM payment_channels WHERE unclaimed_since IS NOT NULL AND claim_after > now()`); n != 1 {
		t.Errorf("%d payment channels wait for another try, want 1", n)
	}
}

// TestManyClaims: hosted facilitators take 25 payment channels per claim.
func TestManyClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	const many = 30
	for i := range many {
		payer := w.channelPayer(alice.Wallet)
		payer.salt = fmt.Sprintf("0x%064x", i)
		alice.sendWith(payer.sign(sendPath, 5000, 10_000), bob, fmt.Sprint("from payment channel ", i)).Require(t, "a deposit", 200)
	}
	limited := testkit.DialectNamed("takes 25 payment channels per claim").Over(w.Facilitator, 0)
	w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool { limited.ServeHTTP(rw, r); return true })
	w.due()
	settles := w.settles.Load()
	if !w.recoverUntil(func() bool { return w.Ledger.Received(devnet.Payee).Settled == many*5000 }) {
		t.Errorf("claimed %+v, want %d", w.Ledger.Received(devnet.Payee), many*5000)
	}
	if n := w.settles.Load() - settles; n > 3 {
		t.Errorf("%d calls, want two claims and a payout", n)
	}
}

// TestClaimsTogether: when one payment channel is due, those with half of the age are claimed in the same transaction.
func TestClaimsTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	old, half, young := alice.opened(bob, 1), bob.opened(carol, 1), carol.opened(alice, 1)
	age := func(id, age string) {
		w.Exec(`UPDATE payment_channels SET unclaimed_since = now() - $2::interval WHERE id = $1`, id, age)
	}
	claimed := func(id string) uint64 { return w.Ledger.Channel(id).TotalClaimed }
	age(half.ID, "4 hours")
	w.recoverUntil(func() bool { return true })
	if claimed(half.ID) != 0 {
		t.Error("a payment channel was claimed at half of the age although none is due")
	}
	age(old.ID, "7 hours")
	age(young.ID, "2 hours")
	settles := w.settles.Load()
	if !w.recoverUntil(func() bool { return claimed(old.ID) == 5000 && claimed(half.ID) == 5000 }) {
		t.Errorf("claimed %d and %d, want 5000 each", claimed(old.ID), claimed(half.ID))
	}
	if claimed(young.ID) != 0 || w.settles.Load() > settles+2 {
		t.Errorf("claimed %d of the young one, %d transactions, want none and a claim and a payout", claimed(young.ID), w.settles.Load()-settles)
	}
	w.checkChannels()
}
