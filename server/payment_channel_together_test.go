package server_test

import "testing"

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
