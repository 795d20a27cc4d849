//go:build attack

package attack

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// authorizer is the servers' key for payment channels.
var authorizer = testkit.NewKey()

// day is the withdraw delay, the default.
const day = 24 * time.Hour

const (
	mePath   = "/agent/me"
	sendPath = "/chat/private/send"
)

// sendPrice is the price of all messages of these tests.
var sendPrice = operations[sendPath].price

// channelFlags writes the authorizer's key to a file and returns the settings of payment channels: that file, and a least deposit that
// leaves small deposits to the tests.
func (w *world) channelFlags() []string {
	w.T.Helper()
	key := fmt.Sprintf("%x", evm.FromECDSA(authorizer))
	w.Secret(key)
	file := filepath.Join(w.T.TempDir(), "authorizer")
	testkit.NoError(w.T, os.WriteFile(file, []byte(key), 0o600))
	return []string{"--authorizer-key", "file:" + file, "--channel-min-deposit", "0.000001"}
}

// channelOffer returns what a server with a withdraw delay offers for a path.
func channelOffer(path string, delay time.Duration) x402.PaymentRequirements {
	terms := x402.ChannelTerms{ReceiverAuthorizer: testkit.Address(authorizer), WithdrawDelay: uint64(delay / time.Second),
		MinDeposit: testkit.Dollar} //nolint:gosec // positive
	return testkit.PlayMoney.BatchRequirements(operations[path].price, devnet.Payee, 60, terms)
}

// channelPayer signs the payments of one payment channel. It has no state: the test says which amounts it signs.
type channelPayer struct {
	w      *world
	agent  *agent
	signer *x402.ChannelSigner
}

// payer returns a payer of an agent with a payment channel of its own.
func (w *world) payer(of *agent) *channelPayer {
	w.T.Helper()
	salt := fmt.Sprintf("0x%064x", contentNumber.Add(1))
	signer, err := x402.NewChannelSigner(x402.NewKeySigner(of.wallet), salt, channelOffer(sendPath, day))
	testkit.NoError(w.T, err)
	return &channelPayer{w: w, agent: of, signer: signer}
}

// with replaces the payment of an order.
func (p *channelPayer) with(o order, payment *x402.BatchPayment) order {
	p.w.T.Helper()
	payment.Accepted = channelOffer(o.path, day)
	header, err := x402.EncodeBatchPayment(payment)
	testkit.NoError(p.w.T, err)
	o.header, o.payment = header, nil
	p.w.Secret(header)
	if signature := payment.Payload.Voucher.Signature; len(signature) > 40 {
		p.w.Secret(signature)
	}
	return o
}

// says is the order to send a private message, paid by the payment channel.
func (p *channelPayer) says(about string, cumulative, deposit uint64) order {
	p.w.T.Helper()
	to := p.w.bob
	if p.agent == to {
		to = p.w.alice
	}
	payment, err := p.signer.Sign(p.w.T.Context(), cumulative, deposit, p.w.Ledger.Now())
	testkit.NoError(p.w.T, err)
	return p.with(p.agent.says(to, about), payment)
}

// open deposits a dollar and pays for messages, and returns what the channel was charged.
func (p *channelPayer) open(s *server, messages int) (charged uint64) {
	p.w.T.Helper()
	deposit := uint64(testkit.Dollar)
	for range messages {
		charged += sendPrice
		s.insist(p.says("opens a channel", charged, deposit)).Require(p.w.T, "a message from a payment channel", 200)
		deposit = 0
	}
	return charged
}

// refund is the request for a refund, as official clients make it: without an API key. Amount 0 asks for everything.
func (p *channelPayer) refund(charged, amount uint64) order {
	p.w.T.Helper()
	payment, err := p.signer.SignRefund(p.w.T.Context(), charged, amount)
	testkit.NoError(p.w.T, err)
	return p.with(order{operation: operations[mePath]}, payment)
}

// pass lets time pass for payment channels: the database's times become older.
func (w *world) pass(d time.Duration) {
	w.T.Helper()
	w.Exec(`UPDATE payment_channels SET unclaimed_since = unclaimed_since - $1::interval, claim_after = claim_after - $1::interval,
		lease_until = lease_until - $1::interval, synced_at = synced_at - $1::interval, used_at = used_at - $1::interval,
		idle_since = idle_since - $1::interval`, d)
	w.Exec(`UPDATE payment_channel_scans SET known_at = known_at - $1::interval, taken_at = taken_at - $1::interval`, d)
}

// paidOut waits until everything that was charged is claimed and paid out.
func (w *world) paidOut() {
	w.T.Helper()
	if !testkit.Eventually(2*recoveryTime, func() bool {
		if w.Count("SELECT count(*) FROM payment_channels WHERE claimed < charged") != 0 {
			return false
		}
		sums := w.Ledger.Received(devnet.Payee) // after it, because a claim is recorded after it moved
		return sums.Settled == sums.Claimed
	}) {
		w.T.Errorf("the payee has claimed and been paid %+v, want everything that was charged", w.Ledger.Received(devnet.Payee))
	}
}

// withdraws lets a payer withdraw on the chain as if the servers had not been able to claim in time. The chain's clock goes forward
// by the delay.
func (w *world) withdraws(p *channelPayer, amount uint64) {
	w.T.Helper()
	testkit.NoError(w.T, w.Ledger.InitiateWithdraw(p.signer.Config, amount))
	w.Ledger.Advance(day + time.Second)
	if _, err := w.Ledger.FinalizeWithdraw(p.signer.Config); err != nil {
		w.T.Fatal(err)
	}
}

// cluster runs statements on a connection to another database of the same cluster. DATABASE_NAME is the world's.
func (w *world) cluster(statements ...string) {
	w.T.Helper()
	address, err := url.Parse(w.DatabaseURL)
	testkit.NoError(w.T, err)
	name := strings.TrimPrefix(address.Path, "/")
	address.Path = "/postgres"
	other := testkit.World{T: w.T, DatabaseURL: address.String()}
	for _, statement := range statements {
		other.Exec(strings.ReplaceAll(statement, "DATABASE_NAME", name))
	}
}

// restored runs a function and then restores the database from before it, an hour ago.
func (w *world) restored(lost func()) {
	w.T.Helper()
	w.s.kill()
	w.cluster("CREATE DATABASE DATABASE_NAME_backup TEMPLATE DATABASE_NAME")
	w.s.start("")
	lost()
	w.s.kill()
	w.cluster("DROP DATABASE DATABASE_NAME WITH (FORCE)", "CREATE DATABASE DATABASE_NAME TEMPLATE DATABASE_NAME_backup",
		"DROP DATABASE DATABASE_NAME_backup")
	w.pass(time.Hour)
	w.s.start("")
}
