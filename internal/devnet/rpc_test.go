package devnet

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/x402"
)

// transaction returns a different transaction hash for each number.
func transaction(n int) string { return fmt.Sprintf("0x%064x", 0xabc000+n) }

// openChain serves a ledger and returns the reader of its chain.
func openChain(t *testing.T, ledger *Ledger) *x402.Chain {
	t.Helper()
	server := httptest.NewServer(NewFacilitator(ledger))
	t.Cleanup(server.Close)
	return &x402.Chain{URL: server.URL + "/rpc"}
}

// wantTransfers compares those to the payee.
func wantTransfers(t *testing.T, chain *x402.Chain, from, until uint64, want ...x402.Transfer) {
	t.Helper()
	var got []x402.Transfer
	for transfer, err := range chain.Transfers(t.Context(), token.Asset, Payee, from, until) {
		noError(t, err)
		got = append(got, transfer)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("transfers in blocks %d to %d (-want +got):\n%s", from, until, diff)
	}
}

// TestChain reads a ledger with everything in it the way the server and the operator do.
func TestChain(t *testing.T) {
	t.Parallel()
	ledger := openLedger(t, t.TempDir())
	chain := openChain(t, ledger)
	ctx := t.Context()
	alice, bob := Accounts()[0].Address, Accounts()[1].Address
	began := time.Now().Truncate(time.Second)
	for _, err := range []error{
		ledger.Transfer(alice, Payee, 5000, nonce(1), transaction(1)), // block 1
		ledger.Cancel(bob, nonce(2)),                                  // block 2
		ledger.Mint(Payee, 70),                                        // block 3
		ledger.Transfer(bob, stranger, 9, nonce(3), transaction(1)),   // block 4, in one transaction with block 1
		ledger.Transfer(Payee, bob, 1000, nonce(4), transaction(4)),   // block 5
	} {
		noError(t, err)
	}

	if id, err := chain.ChainID(ctx); err != nil || id != 84532 {
		t.Errorf("the chain's id is %d, %v, want 84532", id, err)
	}
	newest, at, err := chain.Newest(ctx)
	if err != nil || newest != 6 || at.Before(began) || at.After(time.Now()) {
		t.Errorf("the newest block is %d of %s, %v, want 6 of now: an empty one on five others", newest, at, err)
	}
	for address, want := range map[string]bool{token.Asset: true, alice: false} {
		if has, err := chain.HasCode(ctx, address); err != nil || has != want {
			t.Errorf("there is code at %s: %v, %v, want %v", address, has, err, want)
		}
	}
	if got, err := chain.Balance(ctx, token.Asset, strings.ToLower(Payee)); err != nil || got != 4070 {
		t.Errorf("the payee has %d, %v, want 4070", got, err)
	}
	for block, want := range []uint64{0, 5000, 5000, 5070, 5070, 4070} {
		if got, err := chain.BalanceAt(ctx, token.Asset, Payee, uint64(block)); err != nil || got != want {
			t.Errorf("in block %d the payee has %d, %v, want %d", block, got, err, want)
		}
	}
	if _, err := chain.BalanceAt(ctx, token.Asset, Payee, 99); err == nil {
		t.Error("a balance of the future is known")
	}
	if _, err := chain.Balance(ctx, stranger, Payee); err == nil || !strings.Contains(err.Error(), "no token") {
		t.Errorf("the balance of no token says %v", err)
	}

	payee, zero := strings.ToLower(Payee), "0x0000000000000000000000000000000000000000"
	first := x402.Transfer{From: strings.ToLower(alice), To: payee, Amount: 5000, Transaction: transaction(1), Block: 1, LogIndex: 1}
	minted := x402.Transfer{From: zero, To: payee, Amount: 70, Block: 3}
	for transfer, err := range chain.Transfers(ctx, token.Asset, Payee, 3, 3) {
		if err != nil || !nonceForm.MatchString(transfer.Transaction) {
			t.Errorf("a mint's transaction is %q, %v, want some hash", transfer.Transaction, err)
		}
		minted.Transaction = transfer.Transaction
	}
	wantTransfers(t, chain, 0, 6, first, minted)
	wantTransfers(t, chain, 2, 6, minted)
	wantTransfers(t, chain, 0, 2, first)
	wantTransfers(t, chain, 4, 99)
	for payout, err := range chain.Payouts(ctx, token.Asset, Payee, 0, 6) {
		if err != nil || payout.Amount != 1000 || payout.To != strings.ToLower(bob) {
			t.Errorf("the payee paid %+v, %v, want 1000 to bob", payout, err)
		}
	}

	used, err := chain.AuthorizationsIn(ctx, token.Asset, transaction(1))
	second := x402.Transfer{From: strings.ToLower(bob), To: strings.ToLower(stranger), Amount: 9, Transaction: transaction(1), Block: 4,
		LogIndex: 1}
	if diff := cmp.Diff([]x402.UsedAuthorization{{Authorizer: first.From, Nonce: nonce(1), Transfer: first},
		{Authorizer: second.From, Nonce: nonce(3), Transfer: second}}, used); err != nil || diff != "" {
		t.Errorf("the authorizations in the transaction: %v (-want +got):\n%s", err, diff)
	}
	if _, err := chain.AuthorizationsIn(ctx, token.Asset, transaction(9)); err == nil {
		t.Error("a transaction that never was has authorizations")
	}
}

func TestAuthorizationOnChain(t *testing.T) {
	t.Parallel()
	ledger := openLedger(t, "")
	chain := openChain(t, ledger)
	alice, bob := Accounts()[0].Address, Accounts()[1].Address
	began := time.Now().Truncate(time.Second)
	for _, err := range []error{
		ledger.Transfer(bob, alice, 77, nonce(1), transaction(1)), // another one's authorization with the same nonce
		ledger.Transfer(alice, Payee, 5000, nonce(1), transaction(2)),
		ledger.Cancel(alice, nonce(2)),
	} {
		noError(t, err)
	}
	for name, test := range map[string]struct {
		nonce string
		want  x402.AuthorizationState
	}{
		"a used one":     {nonce(1), x402.AuthorizationState{Used: true, Transaction: transaction(2), To: strings.ToLower(Payee), Amount: 5000}},
		"a cancelled on": {nonce(2), x402.AuthorizationState{Cancelled: true}},
		"an open one":    {nonce(3), x402.AuthorizationState{}},
	} {
		for _, since := range []time.Time{began, began.Add(-time.Hour), began.Add(-24 * 365 * time.Hour)} {
			got, err := chain.Authorization(t.Context(), token.Asset, alice, test.nonce, since)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got.ChainTime.Before(began) || (test.want != x402.AuthorizationState{}) == got.At.Before(began) {
				t.Errorf("%s is of %s, and the chain at %s", name, got.At, got.ChainTime)
			}
			if test.want.Cancelled != (got.Cancelled && got.Transaction != "") {
				t.Errorf("%s: cancelled %v in %q", name, got.Cancelled, got.Transaction)
			}
			got.At, got.ChainTime = time.Time{}, time.Time{}
			if got.Cancelled {
				got.Transaction = ""
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
	// It was used before the time that was given, so what became of it cannot be told.
	if got, err := chain.Authorization(t.Context(), token.Asset, alice, nonce(1), time.Now().Add(time.Hour)); err == nil {
		t.Errorf("an authorization used earlier than that: %+v, want an error", got)
	}
}

// TestBlockAt looks for times in a journal with gaps and with records of one second.
func TestBlockAt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	payee := strings.ToLower(Payee)
	var journal bytes.Buffer
	times := []int64{0, 0, 1000, 1000, 1002, 5000, 5001, 1_700_000_000, 1_700_000_000, 1_700_000_000, 1_700_000_007}
	for _, at := range times {
		fmt.Fprintf(&journal, `{"kind":"mint","to":"%s","amount":"1"`, payee)
		if at != 0 {
			fmt.Fprintf(&journal, `,"time":%d`, at)
		}
		fmt.Fprintln(&journal, "}")
	}
	noError(t, os.WriteFile(filepath.Join(dir, journalName), journal.Bytes(), 0o600))
	ledger := openLedger(t, dir)
	chain := openChain(t, ledger)
	for at, want := range map[int64]uint64{
		-1: 0, 0: 2, 1: 2, 999: 2, 1000: 4, 1001: 4, 1002: 5, 4999: 5, 5000: 6, 5001: 7, 1_699_999_999: 7,
		1_700_000_000: 10, 1_700_000_006: 10, 1_700_000_007: 11, 1_700_000_008: 11,
	} {
		if got, err := chain.BlockAt(t.Context(), time.Unix(at, 0)); err != nil || got != want {
			t.Errorf("the block at %d is %d, %v, want %d", at, got, err, want)
		}
	}
	newest, began, err := chain.Newest(t.Context())
	noError(t, err)
	ledger.Advance(time.Second)
	if later, at, err := chain.Newest(t.Context()); err != nil || later <= newest || !at.After(began) {
		t.Errorf("a second later the newest block is %d of %s, %v, want a new one: time goes on", later, at, err)
	}
	if got, err := chain.BlockAt(t.Context(), time.Now().Add(time.Hour)); err != nil || newest < 12 || got < newest {
		t.Errorf("the block in an hour is %d, %v, want the newest, %d or later", got, err, newest)
	}
}

// TestOddCalls: what the dev chain does not have is an error, never a wrong reply.
func TestOddCalls(t *testing.T) {
	t.Parallel()
	ledger := openLedger(t, "")
	alice := Accounts()[0].Address
	noError(t, ledger.Transfer(alice, Payee, 5000, nonce(1), transaction(1)))
	server := httptest.NewServer(NewFacilitator(ledger))
	t.Cleanup(server.Close)
	used := `{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"` + token.Asset + `","data":"0xe94a0102` +
		strings.Repeat("0", 24) + alice[2:] + nonce(1)[2:] + `"},`
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"eth_gasPrice"}`:                                     `"error"`,
		`{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x9",false]}`:      `"result":null`,
		`{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["earliest",false]}`: `"number":"0x0"`,
		`{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"` + token.Asset +
			`","data":"0xe94a0102"},"latest"]}`: `"error"`,
		`{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"` + token.Asset +
			`"},"latest"]}`: `"error"`,
		`{"jsonrpc":"2.0","id":1,"method":"eth_getLogs","params":[{"address":"` + Payee +
			`","fromBlock":"0x0","toBlock":"latest"}]}`: `"result":[]`,
		`{"jsonrpc":"2.0","id":1,"method":"eth_getLogs","params":[{"address":"` + token.Asset +
			`","fromBlock":"0x9","toBlock":"0xa"}]}`: `"error"`,
		used + `"0x0"]}`:                  `0000"`,
		used + `"0x1"]}`:                  `0001"`,
		used + `"latest"]}`:               `0001"`,
		used + `"0x99"]}`:                 `"code":-32000,"message":"header not found"`,
		used[:len(used)-1] + `]}`:         `"code":-32602`, // a parameter is missing
		`{"id":1,"method":"eth_chainId"}`: `"code":-32600`,
		`{"jsonrpc":"2.0","id":"a","method":"eth_chainId"}`: `{"jsonrpc":"2.0","id":"a",` +
			`"result":"0x14a34"}`,
		`{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}`: `{"jsonrpc":"2.0","id":1,` +
			`"result":"0x14a34"}`,
		`{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[1]}`:                   `"code":-32602`,
		`{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":[null,false]}`: `"code":-32602`,
		`[{"jsonrpc":"2.0","id":1,"method":"eth_chainId"},{"jsonrpc":"2.0","id":2,"method":"eth_gasPrice"}]`: `[{"jsonrpc":"2.0","id":1,` +
			`"result":"0x14a34"},{"jsonrpc":"2.0","id":2,"error":{"code":-32601`,
	} {
		if _, reply := call(t, http.MethodPost, server.URL+"/rpc", body); !strings.Contains(reply, want) {
			t.Errorf("%s: %s, want %s in it", body, reply, want)
		}
	}
}
