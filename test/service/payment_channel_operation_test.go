package service

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// TestClaimBySum: the vouchers of a payment channel are claimed before they are old if they reach the sum.
func TestClaimBySum(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels, func(config *server.Config, _ *payment.Chain, _ string) { config.Channels.ClaimSum = 10_000 })
	alice, bob := w.agent("alice"), w.agent("bob")
	alices, bobs := alice.opened(bob, 2), bob.opened(alice, 1)
	if !w.recoverUntil(func() bool { return w.Ledger.Channel(alices.ID).TotalClaimed == 10_000 }) {
		t.Errorf("it is not claimed: %+v", w.Ledger.Channel(alices.ID))
	}
	if state := w.Ledger.Channel(bobs.ID); state.TotalClaimed != 0 {
		t.Errorf("less is claimed too: %+v", state)
	}
}

// TestLostPayout: what is claimed and not paid out is paid out later, also by a server that starts after the claim.
func TestLostPayout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	for _, test := range []struct {
		name string
		by   func() *world
	}{{"the same server", func() *world { return w }}, {"another server", func() *world { return w.beside() }}} {
		paid := w.Ledger.Received(devnet.Payee).Settled
		payer := w.channelPayer(alice.Wallet)
		deposit, charged := uint64(10_000), uint64(w.Count(`SELECT coalesce(max(charged), 0) FROM payment_channels`)) //nolint:gosec // a sum
		alice.sendWith(payer.sign(sendPath, charged+5000, deposit), bob, test.name).Require(t, "a deposit", http.StatusOK)
		w.due()
		mend := w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			lost := testkit.PaymentKind(body) == "settle"
			if lost {
				testkit.HangUp(rw)
			}
			return lost
		})
		if !w.recoverUntil(func() bool { return w.Count(`SELECT count(*) FROM payment_channels WHERE claimed < charged`) == 0 }) {
			t.Fatalf("%s: nothing is claimed", test.name)
		}
		mend()
		server := test.by()
		if !server.recoverUntil(func() bool { return w.Ledger.Received(devnet.Payee).Settled == paid+5000 }) {
			t.Errorf("%s: %+v, want that what is claimed is paid out", test.name, w.Ledger.Received(devnet.Payee))
		}
	}
}

// TestWithdrawalIsClaimed: the worker sees a withdrawal and claims at once, also while a refund is being settled; and it sees the end.
func TestWithdrawalIsClaimed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	signer, refunding := alice.opened(bob, 2), carol.opened(bob, 1)
	testkit.NoError(t, w.Ledger.InitiateWithdraw(refunding.Config, 90_000))
	w.Exec(`UPDATE payment_channels SET state = 'refunding', refund_amount = 1, lease_until = now() + interval '1 hour' WHERE id = $1`,
		refunding.ID)
	testkit.NoError(t, w.Ledger.InitiateWithdraw(signer.Config, 90_000))
	if !w.recoverUntil(func() bool { return w.Ledger.Channel(signer.ID).TotalClaimed == 10_000 }) {
		t.Errorf("it is not claimed: %+v", w.Ledger.Channel(signer.ID))
	}
	w.Exec(`UPDATE payment_channels SET state = 'open', refund_amount = 0, lease_until = NULL WHERE id = $1`, refunding.ID)
	if !w.recoverUntil(func() bool { return w.Ledger.Channel(refunding.ID).TotalClaimed == 5000 }) {
		t.Errorf("what was being refunded is not claimed: %+v", w.Ledger.Channel(refunding.ID))
	}
	if n := w.Count(`SELECT count(*) FROM payment_channels WHERE withdraw_requested_at <> 0`); n != 2 {
		t.Errorf("%d withdrawals are recorded, want 2", n)
	}
	if text := w.admin("/metrics"); !strings.Contains(text, `parley_payment_channels{state="withdrawing"} 2`) ||
		!strings.Contains(text, `parley_payment_channel_transactions_total{kind="claim",outcome="settled"} 2`) {
		t.Error("the metrics lack the withdrawals or the claims")
	}
	w.Ledger.Advance(25 * time.Hour)
	if _, err := w.Ledger.FinalizeWithdraw(signer.Config); err != nil {
		t.Fatal(err)
	}
	if !w.recoverUntil(func() bool { return w.Count(`SELECT balance FROM payment_channels WHERE id = $1`, signer.ID) == 10_000 }) {
		t.Error("the end of the withdrawal is not recorded")
	}
}

// TestClaimAfterWithdrawal: a payer has withdrawn a part of what it was charged. The rest is claimed, and what is lost is told.
func TestClaimAfterWithdrawal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	signer := alice.opened(bob, 2)
	testkit.NoError(t, w.Ledger.InitiateWithdraw(signer.Config, 94_000))
	w.Ledger.Advance(25 * time.Hour)
	if _, err := w.Ledger.FinalizeWithdraw(signer.Config); err != nil {
		t.Fatal(err)
	}
	w.due()
	again := func() bool { // after the first claim was rejected
		w.due()
		return w.Ledger.Channel(signer.ID).TotalClaimed == 6000
	}
	if !w.recoverUntil(again) {
		t.Errorf("the rest is not claimed: %+v", w.Ledger.Channel(signer.ID))
	}
	if text := w.admin("/metrics"); !strings.Contains(text, "parley_unclaimed_lost_atomic_units 4000\n") ||
		!strings.Contains(text, "parley_unclaimed_atomic_units 0\n") {
		t.Error("the metrics do not tell what is lost")
	}
}

// TestIdleRefund: the rest of a payment channel that was not used for the time goes back to the payer, and it can be used again.
func TestIdleRefund(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels, func(config *server.Config, _ *payment.Chain, _ string) { config.Channels.IdleRefund = 720 * time.Hour })
	alice, bob := w.agent("alice"), w.agent("bob")
	idle, used := alice.opened(bob, 1), bob.opened(alice, 1)
	w.Exec(`UPDATE payment_channels SET used_at = now() - interval '31 days', idle_since = now() - interval '31 days' WHERE id = $1`,
		idle.ID)
	before, revenue := w.Ledger.Balance(testkit.Address(alice.Wallet)), w.Revenue()
	if !w.recoverUntil(func() bool {
		return w.Ledger.Balance(testkit.Address(alice.Wallet)) == before+95_000 && w.Revenue() == revenue+5000
	}) {
		t.Fatalf("the payer has %d more and the payee %d, want 95000 and 5000", w.Ledger.Balance(testkit.Address(alice.Wallet))-before,
			w.Revenue()-revenue)
	}
	if state := w.Ledger.Channel(used.ID); state.Balance != 100_000 {
		t.Errorf("a channel in use has %+v, want no refund", state)
	}
	if n := w.Count(`SELECT paid FROM payment_channel_transactions WHERE kind = 'refund' AND claimed = 5000 AND $1 = ANY(payment_channel_ids)`,
		idle.ID); n != 95_000 {
		t.Errorf("the ledger has a refund of %d, want 95000", n)
	}
	payer := w.channelPayer(alice.Wallet)
	alice.sendWith(payer.sign(sendPath, 10_000, 20_000), bob, "back").Want(t, "a deposit after the refund", http.StatusOK)
	w.checkChannels()
}

// TestRotatedKey: after a change of the key, the former key still claims and refunds its payment channels. Without it the operator
// is told.
func TestRotatedKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	old := alice.opened(bob, 2)
	next := testkit.NewKey()
	rotated := func(config *server.Config, _ *payment.Chain, _ string) { config.Channels.Authorizer = next }
	w.due()
	lost := w.beside(rotated)
	lost.recoverUntil(func() bool { return strings.Contains(lost.log.String(), "cannot be claimed without the key") })
	if text := lost.admin("/metrics"); !strings.Contains(text, "parley_unclaimed_without_key_atomic_units 10000\n") ||
		w.Ledger.Channel(old.ID).TotalClaimed != 0 {
		t.Error("the metrics do not tell that a key is missing")
	}
	kept := w.beside(rotated, func(config *server.Config, _ *payment.Chain, _ string) {
		config.Channels.FormerAuthorizers, config.Channels.IdleRefund = append(config.Channels.FormerAuthorizers, authorizer), time.Hour
	})
	alice.w = kept
	payer := kept.channelPayer(alice.Wallet)
	if a := alice.sendWith(payer.sign(sendPath, 5000, 50_000), bob, "a new channel"); a.Status != http.StatusOK ||
		payer.signer(sendPath).ID == old.ID {
		t.Errorf("a channel with the new key: %v", a)
	}
	w.Exec(`UPDATE payment_channels SET used_at = now() - interval '2 hours', idle_since = now() - interval '2 hours' WHERE id = $1`, old.ID)
	if !kept.recoverUntil(func() bool {
		return w.Ledger.Channel(old.ID).Balance == 10_000 && w.Ledger.Received(devnet.Payee).Settled == 10_000
	}) {
		t.Errorf("the former channel has %+v, want everything claimed and the rest refunded", w.Ledger.Channel(old.ID))
	}
	w.checkChannels()
}

// TestRestoredUnderAServer: a server that runs on notices that its database is a backup, and records what it lacks.
func TestRestoredUnderAServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	alice.opened(bob, 2)
	w.due()
	claimed := func() bool { return w.Count(`SELECT sum(claimed) FROM payment_channels`) == 10_000 }
	if !w.recoverUntil(claimed) {
		t.Fatal("nothing is claimed")
	}
	w.Exec(`UPDATE payment_channels SET claimed = 0, charged = 5000, signed_max = 5000, unclaimed_since = now()`)
	w.Exec(`UPDATE payment_channel_scans SET block = 1`)
	if !w.recoverUntil(claimed) {
		t.Error("what the backup lacks is not recorded")
	}
}

// TestRestored: the database is a backup. What was charged since is lost unless it was claimed; no voucher is charged a second time for
// what was claimed; and clients go on after one correction.
func TestRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	alices, bobs := alice.opened(bob, 2), bob.opened(alice, 2) // 10000 each in the backup
	w.Exec(`UPDATE payment_channels SET synced_at = now() - interval '1 hour', used_at = now() - interval '1 hour'`)
	w.Exec(`CREATE TABLE backup AS SELECT * FROM payment_channels`)
	w.Exec(`CREATE TABLE backup_payments AS SELECT id FROM payments`)
	payers := map[*agent]*channelPayer{alice: w.channelPayer(alice.Wallet), bob: w.channelPayer(bob.Wallet)}
	for n := uint64(3); n <= 4; n++ { // 20000 on the chain
		alice.sendWith(payers[alice].sign(sendPath, 5000*n, 0), bob, "after the backup")
	}
	w.due()
	w.recoverUntil(func() bool { return w.Ledger.Received(devnet.Payee).Settled == 30_000 })
	alice.sendWith(payers[alice].sign(sendPath, 25_000, 0), bob, "not claimed")
	bob.sendWith(payers[bob].sign(sendPath, 15_000, 0), alice, "not claimed")
	w.Exec(`DELETE FROM payments WHERE id NOT IN (SELECT id FROM backup_payments)`)
	w.Exec(`DELETE FROM payment_channels`)
	w.Exec(`INSERT INTO payment_channels SELECT * FROM backup`)

	restored := w.beside()
	alice.w, bob.w = restored, restored
	// Honest clients sign what comes next for them, and get the state of the chain.
	for _, one := range []struct {
		who     *agent
		signs   uint64
		charged string
	}{{alice, 30_000, "20000"}, {bob, 20_000, "10000"}} {
		payer := payers[one.who]
		payer.w = restored
		reason, state, _ := correctionOf(t, one.who.sendWith(payer.sign(sendPath, one.signs, 0), bob, "next"))
		if reason != x402.ReasonBatchCumulativeMismatch || state.ChargedCumulativeAmount != one.charged {
			t.Errorf("%s signs %d: %s %+v, want a correction to %s", one.who.Name, one.signs, reason, state, one.charged)
		}
	}
	replayed := alice.sendWith(payers[alice].sign(sendPath, 15_000, 0), bob, "replayed")
	if _, state, _ := correctionOf(t, replayed); state.ChargedCumulativeAmount != "20000" || state.TotalClaimed != "20000" {
		t.Errorf("a voucher that was claimed: %+v", state)
	}
	for _, next := range []struct {
		from, to *agent
		signs    uint64
	}{{alice, bob, 25_000}, {bob, alice, 15_000}} {
		if a := next.from.sendWith(payers[next.from].sign(sendPath, next.signs, 0), next.to, "corrected"); a.Status != http.StatusOK {
			t.Errorf("%s after the correction: %v", next.from.Name, a)
		}
	}
	if !strings.Contains(restored.log.String(), "more is claimed from a payment channel than this database has charged") ||
		strings.Contains(restored.log.String(), bobs.ID) {
		t.Error("the log does not tell which payment channel was claimed further, or names another one")
	}
	if n := w.Count(`SELECT count(*) FROM payment_channels WHERE id = $1 AND charged = 25000 AND claimed = 20000`, alices.ID); n != 1 {
		t.Error("the payment channel does not go on from what was claimed")
	}
}
