//go:build !noserver

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// strict compares the books strictly, and returns what is reported as an error.
func (b *books) strict() error {
	b.t.Helper()
	_, err := b.reconcile("--strict")
	return err
}

// TestReconcileStrict: what the chain knows and the ledger lacks is an error only with --strict, and a plain transfer never is: anybody
// can make one.
func TestReconcileStrict(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		books func(b *books)
		says  string
	}{
		"nothing":          {func(*books) {}, ""},
		"a plain transfer": {func(b *books) { testkit.NoError(b.t, b.chain.Mint(devnet.Payee, 123)) }, ""},
		"an open payment":  {func(b *books) { b.mine(b.enter(store.PaymentUnknown, 1, nil), devnet.Payee, 5000, hash(1)) }, ""},
		"a lost payment": {func(b *books) {
			b.mine(entry{account: 5, nonce: "0x" + strings.Repeat("ab", 32)}, devnet.Payee, 5000, hash(1001))
		}, "behind: 1"},
		"a claim": {func(b *books) {
			b.act("claim", "--all")
			b.exec(`UPDATE payment_channels SET claimed = 0, unclaimed_since = now()`)
		}, "behind: 1"},
		"a payout without a transaction": {func(b *books) {
			b.act("claim", "--all")
			b.exec(`UPDATE payment_channel_transactions SET transaction = '' WHERE kind = 'settle'`)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			b.paid(0)
			b.channel(1, 2)
			test.books(b)
			_, lenient := b.reconcile()
			err := b.strict()
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("strictly: %v, want %q", err, test.says)
			}
			if strings.HasPrefix(test.says, "behind") && lenient != nil {
				t.Errorf("without --strict: %v, want no error", lenient)
			}
		})
	}
}

// TestRecoverPayments: after a restore everything that the chain knows is entered again, once, and the strict comparison agrees.
func TestRecoverPayments(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.paid(0)
	kept, lost := b.channel(1, 2), b.channel(2, 3)
	b.act("claim", "--all")
	b.exec(`DELETE FROM payments WHERE payment_channel_id = '` + lost.ID + `'`)
	b.exec(`DELETE FROM payment_channels WHERE id = '` + lost.ID + `'`)
	b.exec(`UPDATE payment_channels SET claimed = 5000, charged = 5000, signed_max = 5000 WHERE id = '` + kept.ID + `'`)
	b.exec(`DELETE FROM payment_channel_transactions`)
	gone := entry{account: 5, nonce: "0x" + strings.Repeat("ab", 32)}
	b.mine(gone, devnet.Payee, 5000, hash(1001))
	failed := b.enter(store.PaymentFailed, 6, map[string]string{"payment_identifier": "NULL"})
	b.mine(failed, devnet.Payee, 5000, hash(1002))
	testkit.NoError(b.t, b.chain.Mint(devnet.Payee, 1))

	const summary = "lost: 2 payments of 0.010000 USD, 1 payouts, 1 payment channels"
	if b.strict() == nil {
		t.Error("the strict comparison agrees before anything is entered")
	}
	dry := b.text("recover", "--dry-run", "--rpc-url", b.rpcURL)
	if testkit.Contains(t, dry, summary, gone.nonce); strings.Contains(dry, "entered") {
		t.Errorf("dry run:\n%s", dry)
	}
	testkit.Contains(t, b.text("recover", "--rpc-url", b.rpcURL), summary, "\nentered 5\n")
	if err := b.strict(); err != nil {
		t.Errorf("after recover: %v", err)
	}
	testkit.Contains(t, b.text("recover", "--rpc-url", b.rpcURL), "\nentered 0\n")
	isFailed := func(line string) bool { return strings.Contains(line, failed.id) }
	if lines := b.lines("list", "--state=open"); !slices.ContainsFunc(lines, isFailed) ||
		len(lines) != 3 {
		t.Errorf("open payments, want the two restored ones:\n%s", strings.Join(lines, ""))
	}
	if lines := b.lines("list", "--operation=restored", "--state=undeliverable"); len(lines) != 3 {
		t.Errorf("restored payments:\n%s", strings.Join(lines, ""))
	}
}

// TestRecoverIntoAnEmptyLedger: the backup is from before the first payment, so the operator names the terms and the time.
func TestRecoverIntoAnEmptyLedger(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.mine(entry{account: 5, nonce: "0x" + strings.Repeat("ab", 32)}, devnet.Payee, 5000, hash(1001))
	terms := []string{"recover", "--rpc-url", b.rpcURL, "--payee", devnet.Payee, "--network", devnet.NetworkID}
	if out, err := b.run(terms...); err == nil || !strings.Contains(err.Error(), "--since") {
		t.Errorf("without a time: %v\n%s", err, out)
	}
	testkit.Contains(t, b.text(append(terms, "--since=2026-01-01")...), "\nentered 1\n")
	if err := b.strict(); err != nil {
		t.Errorf("after that: %v", err)
	}
}
