//go:build !noserver

package main

import (
	"encoding/csv"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// channelAuthorizer is the account whose key signs claims.
const channelAuthorizer = 8

// channel writes a payment channel of an account with 100,000 units, of which some are charged in calls of 5000.
func (b *books) channel(account int, calls uint64) *x402.ChannelSigner {
	b.t.Helper()
	network, _ := x402.LookupNetwork(devnet.NetworkID)
	key, err := evm.HexToECDSA(strings.TrimPrefix(devnet.Accounts()[account].PrivateKey, "0x"))
	testkit.NoError(b.t, err)
	terms := x402.ChannelTerms{ReceiverAuthorizer: devnet.Accounts()[channelAuthorizer].Address, WithdrawDelay: 86_400}
	offer := network.BatchRequirements(5000, devnet.Payee, 60, terms)
	signer, err := x402.NewChannelSigner(x402.NewKeySigner(key), "0x"+strings.Repeat("0", 64), offer)
	testkit.NoError(b.t, err)
	testkit.NoError(b.t, b.chain.DepositIntoChannel(signer.Config, 100_000))
	newest, err := signer.Sign(b.t.Context(), 5000*calls, 0, time.Now())
	testkit.NoError(b.t, err)
	payer := strings.ToLower(signer.Config.Payer)
	_, err = b.connection.Exec(
		b.t.Context(),
		`INSERT INTO payment_channels (id, payer, payer_authorizer, network, asset, pay_to, receiver_authorizer, withdraw_delay, salt,
		charged, signed_max, signature, balance, claimed, withdraw_requested_at, refund_nonce, synced_at, state, unclaimed_since, used_at,
			created_at)
		VALUES ($1, $2, $2, $3, $4, $5, $6, 86400, $7, $8, $8, $9, 100000, 0, 0, 0, now(), 'open', now(), now(), now())`,
		signer.ID,
		payer,
		devnet.NetworkID,
		b.asset,
		strings.ToLower(devnet.Payee),
		strings.ToLower(signer.Config.ReceiverAuthorizer),
		signer.Config.Salt,
		int64(5000*calls),
		newest.Payload.Voucher.Signature,
	)
	testkit.NoError(b.t, err)
	for n := range calls {
		b.enter(store.PaymentDelivered, account, map[string]string{
			"scheme": "'batch-settlement'", "payment_channel_id": quote(signer.ID), "cumulative_amount": strconv.FormatUint(5000*(n+1), 10),
			"network": "NULL", "asset": "NULL", "nonce": "NULL", "pay_to": "NULL"})
	}
	return signer
}

// act runs a command that needs the facilitator and the key, and wants no error.
func (b *books) act(args ...string) string {
	b.t.Helper()
	file := writeFile(b.t, devnet.Accounts()[7].PrivateKey+"\n"+devnet.Accounts()[channelAuthorizer].PrivateKey+"\n")
	return b.text(
		append(args, "--rpc-url", b.rpcURL, "--facilitator-url", strings.TrimSuffix(b.rpcURL, "/rpc"), "--authorizer-key", "file:"+file)...)
}

// TestPaymentsChannels: list, show, claim, settle, and the comparison with the chain before and after.
func TestPaymentsChannels(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	one := b.channel(0, 3)
	b.channel(1, 2)
	if lines := b.lines("channels"); len(lines) != 3 || !strings.Contains(lines[0], "UNCLAIMED") ||
		!strings.Contains(strings.Join(lines, ""), "0.015000") {
		t.Errorf("payment channels:\n%s", strings.Join(lines, ""))
	}
	for name, test := range map[string]struct {
		args []string
		want int
	}{"a payer": {[]string{"--payer=" + devnet.Accounts()[1].Address}, 1}, "a limit": {[]string{"--limit=1"}, 1},
		"states": {[]string{"--state=open,refunding"}, 2}, "another one": {[]string{"--state=refunding"}, 0},
		"unclaimed": {[]string{"--unclaimed"}, 2}, "withdrawing": {[]string{"--withdrawing"}, 0},
		"too late": {[]string{"--since=2126-01-01"}, 0},
	} {
		if lines := b.lines(append([]string{"channels", "--format=json"}, test.args...)...); len(lines) != test.want {
			t.Errorf("%s: %d lines, want %d", name, len(lines), test.want)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(strings.Join(b.lines("channels", "--format=csv"), ""))).ReadAll()
	if err != nil || len(rows) != 3 || len(rows[0]) != 23 {
		t.Errorf("the CSV has the rows %v, %v", rows, err)
	}
	if text := strings.Join(b.lines("channel", "0x"+strings.ToUpper(one.ID[2:])), ""); strings.Count(text, "delivered") != 3 {
		t.Errorf("the payment channel, want its three payments:\n%s", text)
	}
	for _, args := range [][]string{{"channels", "--state=delivered"}, {"channel", "x"}, {"channel", hash(1)}, {"claim", "--all"},
		{"settle"}} {
		if out, err := b.run(args...); err == nil {
			t.Errorf("payments %v succeeds, want an error:\n%s", args, out)
		}
	}
}

// TestPaymentsClaim: everything is claimed and paid out by hand, and the books agree with the chain before and after.
func TestPaymentsClaim(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	one, two := b.channel(0, 3), b.channel(1, 2)
	c, failed := b.reconcile()
	wantFindings(t, c)
	if failed != nil || c.Channels == nil || c.Channels.Charged != 25_000 || c.Channels.ChainClaimed != 0 || c.PaidOut != 0 {
		t.Errorf("before the claim: %v, %+v", failed, c.Channels)
	}
	testkit.Contains(t, b.act("claim", "--channel", two.ID), "claimed from 1 of 1", "paid out 10000 ")
	testkit.Contains(t, b.act("claim", "--all"), "claimed from 1 of 1")
	if claimed := b.chain.Channel(one.ID).TotalClaimed; claimed != 15_000 {
		t.Errorf("%d are claimed from the other one", claimed)
	}
	testkit.Contains(t, b.act("claim", "--all"), "claimed from 0 of 0")
	testkit.Contains(t, b.act("settle"), "nothing is claimed that is not paid out")
	c, failed = b.reconcile()
	wantFindings(t, c)
	if failed != nil || c.Channels.Claimed != 25_000 || c.Channels.ChainSettled != 25_000 || c.PaidOut != 25_000 || c.Channels.Unknown != 0 {
		t.Errorf("after the claim: %v, %+v, paid out %d", failed, c.Channels, c.PaidOut)
	}
	if text := strings.Join(b.lines("channel", one.ID), ""); strings.Count(text, "delivered") != 3 ||
		!strings.Contains(text, "claim, payment channels: 1") {
		t.Errorf("the payment channel, want its three payments and its claim:\n%s", text)
	}
	text := strings.Join(strings.Fields(strings.Join(b.lines("summary", "--gas", "--rpc-url", b.rpcURL), "")), " ")
	testkit.Contains(t, text, "exact 0 0.000000 0.0 % 0 0.000000 0.0 %", "batch-settlement 5 0.025000 100.0 % 4 0.009600 38.4 %",
		"total 5 0.025000 100.0 % 4 0.009600 38.4 %", "claims 2 0.025000", "payouts 2 0.025000", "4 transactions not reported")
}

// TestReconcileChannels: what contradicts the chain is told.
func TestReconcileChannels(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	restored, stranger, withdrawn, open := b.channel(0, 2), b.channel(1, 3), b.channel(2, 4), b.channel(3, 1)
	b.act("claim", "--channel", restored.ID)
	b.act("claim", "--channel", stranger.ID)
	for _, change := range []string{
		`UPDATE payment_channels SET charged = 5000, signed_max = 5000, claimed = 5000 WHERE id = '` + restored.ID + `'`,
		`DELETE FROM payment_channels WHERE id = '` + stranger.ID + `'`,
		`UPDATE payment_channels SET claimed = 5000, unclaimed_since = NULL WHERE id = '` + open.ID + `'`,
		`DELETE FROM payment_channel_transactions WHERE kind = 'settle' AND paid = 15000`,
		`UPDATE payment_channel_transactions SET paid = 11000 WHERE kind = 'settle'`} {
		b.exec(change)
	}
	testkit.NoError(t, b.chain.InitiateWithdraw(withdrawn.Config, 100_000))
	b.chain.Advance(25 * time.Hour)
	_, err := b.chain.FinalizeWithdraw(withdrawn.Config)
	testkit.NoError(t, err)
	testkit.NoError(t, errors.Join(b.chain.InitiateWithdraw(open.Config, 90_000), b.chain.DepositIntoChannel(open.Config, 1)))
	c, failed := b.reconcile()
	wantFindings(t, c,
		"contradiction  is recorded as paid in this transaction, which paid 0.010000",
		"contradiction  is recorded as claimed, but is not claimed",
		"contradiction  was charged, but is no longer in the payment channel: it is lost",
		"contradiction  was claimed from a payment channel that is not in the ledger",
		"contradiction  was claimed, but not charged by this ledger",
		"notice  can be withdrawn by the payer from ",
		"behind  payout of payment channels that is not in the ledger",
		"behind  was deposited, withdrawn or refunded since the ledger read the balance",
	)
	if failed == nil || c.Contradictions != 5 || c.Channels.Unknown != 0 || len(c.LostChannels) != 1 || c.LostChannels[0].Claimed != 15_000 {
		t.Errorf("%v: %d contradictions, %d unknown, %+v, want 5, none, one lost payment channel", failed, c.Contradictions, c.Channels.Unknown,
			c.LostChannels)
	}
	testkit.Contains(t, b.text("recover", "--rpc-url", b.rpcURL), "\nentered 5\n")
	testkit.Contains(t, b.text("channels", "--format=json", "--payer="+devnet.Accounts()[0].Address), `"charged":10000,"claimed":10000`)
}
