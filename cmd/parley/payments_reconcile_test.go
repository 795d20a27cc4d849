//go:build !noserver

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/reconcile"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// reconcile compares the books and returns what came out, and whether it counts as a failure.
func (b *books) reconcile(args ...string) (*reconcile.Report, error) {
	b.t.Helper()
	out, failed := b.run(append([]string{"reconcile", "--json", "--rpc-url", b.rpcURL}, args...)...)
	var c *reconcile.Report
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		b.t.Fatalf("reconcile: %v, %v\n%s", err, failed, out)
	}
	if c.Difference != c.Balance-c.Ledger || c.Difference != c.Before+c.Other+c.PaidOut+c.Open+c.Unpaid+c.Beyond-c.Refunded-c.Left-c.Missing {
		b.t.Errorf("the difference is not explained: %+v", c)
	}
	return c, failed
}

// told is a finding in short: its weight, its payment, and the beginning of its text.
func told(findings []reconcile.Finding) []string {
	var all []string
	for _, one := range findings {
		all = append(all, one.Weight+" "+one.Payment+" "+one.Text)
	}
	slices.Sort(all)
	return all
}

// wantFindings compares by beginnings.
func wantFindings(t *testing.T, c *reconcile.Report, want ...string) {
	t.Helper()
	got := told(c.Findings)
	slices.Sort(want)
	for i := range min(len(got), len(want)) {
		if strings.HasPrefix(got[i], want[i]) {
			got[i] = want[i]
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the findings (-want +got):\n%s", diff)
	}
}

func TestReconcileAgrees(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	for account := range 3 {
		b.paid(account)
		b.paid(account)
	}
	// A batch, with two equal payments by one payer, and one that settled although its reply was lost.
	first := b.enter(store.PaymentDelivered, 0, map[string]string{"transaction": quote(hash(77))})
	second := b.enter(store.PaymentUndeliverable, 0, map[string]string{"transaction": quote(hash(77))})
	lost := b.enter(store.PaymentDelivered, 0, map[string]string{"transaction": "''"})
	for _, e := range []entry{first, second, lost} {
		b.mine(e, devnet.Payee, 5000, hash(77))
	}
	b.enter(store.PaymentFailed, 0, nil)

	c, failed := b.reconcile()
	wantFindings(t, c)
	if failed != nil || c.Balance != 45000 || c.Ledger != 45000 || c.Payments != 9 || !c.BeforeKnown ||
		c.Payee != strings.ToLower(devnet.Payee) {
		t.Errorf("books that agree: %v, %+v", failed, c)
	}
	testkit.Contains(t, b.text("reconcile", "--rpc-url", b.rpcURL), "balance on the chain         0.045000 USD\n", "nothing to report")
}

// TestReconcileExplains: money that came or left otherwise, and what is still open, is told and contradicts nothing.
func TestReconcileExplains(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	paid := b.paid(0)
	testkit.NoError(t, b.chain.Mint(devnet.Payee, 123))
	stranger := entry{account: 5, nonce: "0x" + strings.Repeat("ab", 32)}
	b.mine(stranger, devnet.Payee, 5000, hash(1001)) // an authorization that the ledger does not know
	withdrawal := entry{account: 0, nonce: "0x" + strings.Repeat("cd", 32)}
	testkit.NoError(t, b.chain.Transfer(devnet.Payee, devnet.Accounts()[0].Address, 4000, withdrawal.nonce, hash(1002)))
	settled := b.enter(store.PaymentUnknown, 1, nil)
	b.mine(settled, devnet.Payee, 5000, hash(1003))
	waiting := b.enter(store.PaymentUnknown, 1, nil)
	over := b.enter(store.PaymentUnknown, 1, map[string]string{"valid_before": "now() - interval '1 minute'"})
	cancelled := b.enter(store.PaymentSettling, 1, nil)
	testkit.NoError(t, b.chain.Cancel(devnet.Accounts()[1].Address, cancelled.nonce))
	diverted := b.enter(store.PaymentUnknown, 1, nil)
	b.mine(diverted, devnet.Accounts()[9].Address, 5000, hash(1004))

	ahead := b.enter(store.PaymentDelivered, 1, map[string]string{"updated_at": "now() + interval '1 hour'"})

	c, failed := b.reconcile()
	wantFindings(t, c,
		"notice  incoming transfer without an authorization", "behind  payment that is not in the ledger",
		"notice "+ahead.id+" was settled after the newest block of the endpoint",
		"notice "+settled.id+" settled on the chain",
		"notice "+waiting.id+" not settled; that is possible until",
		"notice "+over.id+" can never be settled: its authorization was not used in time",
		"notice "+cancelled.id+" can never be settled: its authorization was cancelled",
		"notice "+diverted.id+" can never be settled: its authorization has paid 0.005000 to "+strings.ToLower(devnet.Accounts()[9].Address),
	)
	if failed != nil || c.Balance != 5000+123+5000-4000+5000 || c.Ledger != 10000 || c.Missing != 5000 || c.Other != 5123 || c.Left != 4000 ||
		c.Open != 5000 ||
		c.Before != 0 {
		t.Errorf("books that can be explained: %v, %+v", failed, c)
	}
	out := b.text("reconcile", "--rpc-url", b.rpcURL)
	testkit.Contains(t, out, "outgoing transfers", "-0.004000 USD", "other incoming transfers", "0.005123 USD", settled.id, hash(1003))
	if strings.Contains(out, paid.id) {
		t.Errorf("the table has the payment that is in order:\n%s", out)
	}
}

func TestReconcileContradicts(t *testing.T) {
	t.Parallel()
	tx := func(n int) map[string]string { return map[string]string{"transaction": quote(hash(n))} }
	for name, test := range map[string]struct {
		books func(b *books) (entry, string) // the contradiction's payment and text
		check func(c *reconcile.Report) bool
	}{
		"delivered and never paid": {func(b *books) (entry, string) {
			return b.enter(store.PaymentDelivered, 1, tx(2001)), "is recorded as paid, but its authorization is unused"
		}, func(c *reconcile.Report) bool { return c.Missing == 5000 }},
		"delivered and cancelled": {func(b *books) (entry, string) {
			e := b.enter(store.PaymentDelivered, 1, tx(2001))
			testkit.NoError(b.t, b.chain.Cancel(devnet.Accounts()[1].Address, e.nonce))
			return e, "is recorded as paid, but its authorization was cancelled"
		}, func(c *reconcile.Report) bool { return c.Missing == 5000 }},
		"delivered and paid to somebody else": {func(b *books) (entry, string) {
			e := b.enter(store.PaymentDelivered, 1, tx(2001))
			b.mine(e, devnet.Accounts()[9].Address, 5000, hash(2001))
			return e, "its authorization has paid 0.005000 to"
		}, func(c *reconcile.Report) bool { return c.Missing == 5000 }},
		"delivered and paid in another transaction": {func(b *books) (entry, string) {
			e := b.enter(store.PaymentDelivered, 1, tx(2001))
			b.mine(e, devnet.Payee, 5000, hash(2002))
			return e, "settled in this transaction, but the ledger has " + hash(2001)
		}, func(c *reconcile.Report) bool { return c.Missing == 0 && c.Other == 0 }},
		"failed and paid": {func(b *books) (entry, string) {
			e := b.enter(store.PaymentFailed, 1, nil)
			b.mine(e, devnet.Payee, 5000, hash(2001))
			return e, "is recorded as failed, but it settled"
		}, func(c *reconcile.Report) bool { return c.Unpaid == 5000 && c.Other == 0 }},
		"failed and paid, in a batch with an equal one that was delivered": {func(b *books) (entry, string) {
			e := b.enter(store.PaymentFailed, 1, nil)
			b.mine(e, devnet.Payee, 5000, hash(2001))
			b.mine(b.enter(store.PaymentDelivered, 1, tx(2001)), devnet.Payee, 5000, hash(2001))
			return e, "is recorded as failed, but it settled"
		}, func(c *reconcile.Report) bool { return c.Unpaid == 5000 }},
		"one transfer for two payments": {func(b *books) (entry, string) {
			e := b.enter(store.PaymentDelivered, 1, tx(2001))
			b.mine(e, devnet.Payee, 5000, hash(2001))
			return b.enter(store.PaymentDelivered, 1, tx(2001)), "is recorded as paid, but its authorization is unused"
		}, func(c *reconcile.Report) bool { return c.Missing == 5000 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			b.paid(0)
			e, text := test.books(b)
			c, failed := b.reconcile()
			wantFindings(t, c, "contradiction "+e.id+" "+text)
			if failed == nil || !strings.Contains(failed.Error(), "1 contradictions") || c.Contradictions != 1 || !test.check(c) {
				t.Errorf("%v, %+v", failed, c)
			}
			if out, err := b.run("reconcile", "--rpc-url", b.rpcURL); err == nil || !strings.Contains(out, e.id) {
				t.Errorf("the table ends with %v and should name %s:\n%s", err, e.id, out)
			}
		})
	}
}

// TestReconcileSince: payments begun before that time are not compared, but their money is recognised.
func TestReconcileSince(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	old := b.enter(store.PaymentDelivered, 1, map[string]string{"transaction": quote(hash(1)), "created_at": "'2026-05-01 00:00:00Z'"})
	b.mine(old, devnet.Payee, 5000, hash(1))
	broken := b.enter(store.PaymentDelivered, 1, map[string]string{"transaction": quote(hash(2)), "created_at": "'2026-05-01 00:00:00Z'"})
	b.paid(0)
	c, failed := b.reconcile("--since=2026-05-02")
	wantFindings(t, c)
	if failed != nil || c.Ledger != 5000 || c.Beyond != 5000 || c.Balance != 10000 {
		t.Errorf("since the second of May: %v, %+v", failed, c)
	}
	c, failed = b.reconcile()
	wantFindings(t, c, "contradiction "+broken.id)
	if failed == nil || c.Ledger != 15000 || c.Beyond != 0 {
		t.Errorf("since ever: %v, %+v", failed, c)
	}
}

func TestReconcileTerms(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	wantError := func(says string, args ...string) {
		t.Helper()
		if out, err := b.run(append([]string{"reconcile"}, args...)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("reconcile %v says %v, want %q\n%s", args, err, says, out)
		}
	}
	wantError("--rpc-url")
	wantError("no payments of this network", "--rpc-url", b.rpcURL)
	b.paid(0)
	wantError("no payments of this network", "--rpc-url", b.rpcURL, "--payee", devnet.Accounts()[0].Address)
	wantError("connect", "--rpc-url", "http://127.0.0.1:1/the-key")
	b.enter(store.PaymentDelivered, 0, map[string]string{"network": "'eip155:8453'"})
	wantError("several networks, assets or payees; choose one: --network eip155:8453 --asset "+b.asset, "--rpc-url", b.rpcURL)
	wantError("serves chain 84532, not eip155:8453", "--rpc-url", b.rpcURL, "--network=eip155:8453")
	if c, failed := b.reconcile("--network", devnet.NetworkID, "--payee", devnet.Payee, "--asset", strings.ToUpper(b.asset)); failed != nil ||
		c.Payments != 1 {
		t.Errorf("with all terms: %v, %+v", failed, c)
	}
}

// TestReconcileUnchecked: where the endpoint does not know what became of a payment, the end is not a success.
func TestReconcileUnchecked(t *testing.T) {
	t.Parallel()
	// The authorization was used long before the payment was begun, where nobody looks for it.
	b := newBooks(t, fmt.Sprintf(`{"kind":"transfer","from":"%s","to":"%s","amount":"5000","nonce":"0x%064x","time":1700000000}`,
		strings.ToLower(devnet.Accounts()[1].Address), strings.ToLower(devnet.Payee), 1),
		`{"kind":"mint","to":"`+strings.ToLower(devnet.Accounts()[1].Address)+`","amount":"1","time":1700000001}`)
	early := b.enter(store.PaymentDelivered, 1, map[string]string{"transaction": quote(hash(9))})
	b.paid(0)
	c, failed := b.reconcile()
	wantFindings(t, c, "unchecked "+early.id+" the token reports the authorization as used, but has no event for it since")
	if failed == nil || c.Unchecked != 1 || c.Missing != 5000 || c.Before != 5000 || c.FromBlock != 3 {
		t.Errorf("an authorization of long ago: %v, %+v", failed, c)
	}
}

// TestReconcileWithoutArchive: most endpoints do not know old balances, which must not be in the way.
func TestReconcileWithoutArchive(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.paid(0)
	b.rpcURL = endpointWith(t, strings.TrimSuffix(b.rpcURL, "/rpc"), func(body []byte) string {
		if bytes.Contains(body, []byte(`"eth_call"`)) && bytes.Contains(body, []byte(`"0x0"]`)) {
			return `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"missing trie node"}}`
		}
		return ""
	})
	c, failed := b.reconcile()
	wantFindings(t, c)
	if failed != nil || c.BeforeKnown || c.Before != 0 || c.Balance != 5000 {
		t.Errorf("without old balances: %v, %+v", failed, c)
	}
}

// TestReconcileAServer compares what a real server has written with the network that it was paid on.
func TestReconcileAServer(t *testing.T) {
	t.Parallel()
	b := &books{t: t, url: storetest.URL(t)}
	server := playServer(t, "--database-url", b.url)
	b.rpcURL = server.facilitator(t) + "/rpc"
	server.register(t, 3, "dave")
	server.register(t, 4, "erin")
	c, failed := b.reconcile()
	wantFindings(t, c)
	if failed != nil || c.Payments != 4 || c.Balance != 2_000_000 || c.Ledger != 2_000_000 {
		t.Errorf("the books of a server: %v, %+v", failed, c)
	}
	server.stop(t)
}
