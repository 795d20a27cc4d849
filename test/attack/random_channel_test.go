//go:build attack

package attack

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

// channel is a payment channel of an actor, and what the actor knows of it. Nobody else pays from it.
type channel struct {
	purse    *purse
	signer   *x402.ChannelSigner
	id       string
	charged  uint64
	balance  uint64
	vouchers map[uint64]*payment // by amount
	families map[uint64]*family  // a voucher with its deposits
}

// randomDelay is the withdraw delay of the randomised run's servers: the shortest that the contract has.
const randomDelay = 15 * time.Minute

// openChannel replaces the actor's payment channel by a new one. The old one stays as it is.
func (a *actor) openChannel() {
	salt := fmt.Sprintf("0x%064x", len(a.channels.channels))
	signer, err := x402.NewChannelSigner(x402.NewKeySigner(a.channels.key), salt, channelOffer(sendPath, randomDelay))
	if err != nil {
		a.r.offence("open a payment channel: %v", err)
		return
	}
	a.channel = &channel{purse: a.channels, signer: signer, id: strings.ToLower(signer.ID), vouchers: map[uint64]*payment{},
		families: map[uint64]*family{}}
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	a.channels.channels = append(a.channels.channels, a.channel)
}

// voucher signs the next voucher of the actor's payment channel for a request, with a deposit if its balance is too low.
func (a *actor) voucher(q *request) (p *payment, deposit uint64) {
	c := a.channel
	amount := c.charged + q.price
	if amount > c.balance || a.chance.IntN(15) == 0 {
		deposit = q.price + uint64(a.chance.IntN(60_000))
		if c.balance+deposit < amount {
			deposit = amount - c.balance
		}
	}
	signed, err := c.signer.Sign(context.Background(), amount, deposit, time.Now())
	if err != nil {
		a.r.offence("sign a voucher: %v", err)
		return nil, 0
	}
	signed.Accepted = channelOffer(q.path, randomDelay)
	header, err := x402.EncodeBatchPayment(signed)
	nonce := c.id + ":" + strconv.FormatUint(amount, 10)
	if err == nil && deposit > 0 {
		nonce, err = x402.DepositNonce(c.id, signed.Payload.Deposit.Authorization.ERC3009.Salt)
	}
	if err != nil {
		a.r.offence("encode a voucher: %v", err)
		return nil, 0
	}
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	if known := c.vouchers[amount]; known != nil && deposit == 0 { // signed again for another request
		known.header = header
		return known, 0
	}
	p = &payment{
		label: "actor " + a.label + ", who " + a.doing, purse: c.purse, channel: c, deposit: deposit, nonce: strings.ToLower(nonce),
		operation: q.operation,
		header:    header, doubleUsed: true, validBefore: time.Now().Unix() + 60,
	}
	if c.families[amount] == nil {
		c.families[amount] = &family{}
	}
	p.family = c.families[amount]
	p.family.payments = append(p.family.payments, p)
	if deposit == 0 {
		c.vouchers[amount] = p
	}
	a.r.payments = append(a.r.payments, p)
	return p, deposit
}

// paysByChannel pays from the actor's payment channel, as a client does that follows corrective 402s.
func (a *actor) paysByChannel(by *account, operationID string) {
	q := a.build(operationID, by)
	if secret[q.path] { // these have payment identifiers: see namesThePayment
		paysOnce(a, by, operationID)
		return
	}
	if a.channel == nil {
		a.openChannel()
	}
	for range 4 {
		p, deposit := a.voucher(q)
		if p == nil {
			return
		}
		got, err := a.sendVoucher(p, q)
		for tries := 0; !final(got, err) && tries < 3; tries++ {
			time.Sleep(time.Duration(50+a.chance.IntN(300)) * time.Millisecond)
			got, err = a.sending(p, q)()
		}
		switch {
		case !final(got, err): // a good client would go on; this one loses the channel
			a.openChannel()
			return
		case got.Status == http.StatusPaymentRequired && a.corrected(got):
			continue
		}
		if settled, extra, ok := settledIn(got); ok {
			a.channel.learn(settled, extra, deposit)
		}
		return
	}
}

// sendVoucher sends a voucher once, at several servers at once, or with another request at the same time.
func (a *actor) sendVoucher(p *payment, q *request) (testkit.Reply, error) {
	first := a.sending(p, q)
	switch a.chance.IntN(12) {
	case 0:
		p.copies = true
		return together(first, a.sending(p, q))
	case 1:
		other := a.build("sendPrivateMessage", q.by)
		if other.path != q.path || other.body == q.body { // another price does not match the offer
			return first()
		}
		p.copies = true
		return together(first, a.sending(p, other))
	}
	return first()
}

// corrected takes the state of the channel from a 402, and reports whether it may try again.
func (a *actor) corrected(got testkit.Reply) bool {
	required, err := x402.DecodePaymentRequired(got.Header.Get(x402.HeaderPaymentRequired))
	if err != nil {
		return false
	}
	for _, offer := range required.Accepts {
		if state, _, ok := x402.Correction(offer); ok {
			chain, err := state.Channel()
			charged, known := state.Charged()
			if err != nil || !known {
				a.r.offence("a corrective 402 with the state %+v", state)
				return false
			}
			a.channel.charged, a.channel.balance = charged, chain.Balance
			if chain.WithdrawRequestedAt != 0 {
				a.openChannel()
			}
			return true
		}
	}
	if required.Error == x402.ReasonBatchChannelNotFound {
		a.channel.charged, a.channel.balance = 0, 0
		return true
	}
	return false
}

// settledIn returns PAYMENT-RESPONSE, if a reply has one of a payment channel.
func settledIn(got testkit.Reply) (settled *x402.SettleResponse, extra x402.BatchExtra, ok bool) {
	settled, err := x402.DecodeSettleResponse(got.Header.Get(x402.HeaderPaymentResponse))
	if err != nil {
		return nil, x402.BatchExtra{}, false
	}
	extra, err = x402.DecodeBatchExtra(settled.Extra)
	return settled, extra, err == nil
}

// learn takes what a reply charged.
func (c *channel) learn(settled *x402.SettleResponse, extra x402.BatchExtra, deposit uint64) {
	if charged, ok := extra.ChannelState.Charged(); ok {
		c.charged = charged
	}
	if settled.Amount == strconv.FormatUint(deposit, 10) {
		c.balance += deposit
	}
}

// refundsOrWithdraws asks for a refund, or starts a withdrawal on the chain, or deposits on its own.
func (a *actor) refundsOrWithdraws(by *account, operationID string) {
	if a.channel == nil || a.channel.charged == 0 {
		a.paysByChannel(by, operationID)
		return
	}
	c := a.channel
	switch a.chance.IntN(8) {
	case 0:
		_ = a.r.Ledger.InitiateWithdraw(c.signer.Config, 1+uint64(a.chance.IntN(10_000)))
		return
	case 1:
		_ = a.r.Ledger.DepositIntoChannel(c.signer.Config, 1+uint64(a.chance.IntN(10_000)))
		return
	}
	signed, err := c.signer.SignRefund(context.Background(), c.charged, uint64(a.chance.IntN(2)*a.chance.IntN(20_000)))
	if err != nil {
		a.r.offence("sign a refund: %v", err)
		return
	}
	q := &request{operation: operations[mePath]}
	signed.Accepted = channelOffer(mePath, randomDelay)
	header, err := x402.EncodeBatchPayment(signed)
	if err != nil {
		a.r.offence("encode a refund: %v", err)
		return
	}
	got, err := a.r.exchange(a.r.T.Context(), a.server(), q, "", header, false)
	switch {
	case err != nil, got.Status == 409, got.Status == 429, got.Status == 503:
	case got.Status == http.StatusPaymentRequired:
		a.corrected(got)
	case got.Status == http.StatusNoContent:
		if _, extra, ok := settledIn(got); ok {
			if chain, err := extra.ChannelState.Channel(); err == nil {
				c.balance = chain.Balance
			}
		}
	default:
		a.r.offence("actor %s: a refund returns %v", a.label, got)
	}
}

// closeChannels waits until nothing is reserved and everything is claimed and paid out, and ends the withdrawals.
func (r *randomRun) closeChannels() {
	const open = "SELECT count(*) FROM payment_channels WHERE state <> 'open' OR claimed < charged"
	done := testkit.Eventually(settleDown, func() bool {
		r.Exec(`UPDATE payment_channels SET lease_until = least(lease_until, now()), claim_after = NULL, unclaimed_since =
			unclaimed_since - interval '1 day'`)
		time.Sleep(time.Second)
		sums := r.Ledger.Received(devnet.Payee)
		return r.Count(open) == 0 && sums.Claimed == sums.Settled
	})
	if !done {
		var rows string
		r.Scan(`SELECT coalesce(string_agg(format('%s %s charged %s claimed %s balance %s', id, state, charged, claimed, balance), E'\n'), '')
			FROM payment_channels
			WHERE state <> 'open' OR claimed < charged`, nil, &rows)
		r.offence("payment channels are not claimed and paid out: %+v\n%s", r.Ledger.Received(devnet.Payee), rows)
	}
	r.Ledger.Advance(randomDelay + time.Second)
	for _, p := range r.purses {
		for _, c := range p.channels {
			_, _ = r.Ledger.FinalizeWithdraw(c.signer.Config) // most have none
		}
	}
}

// checkChannels: what each payment channel was charged is what its delivered calls cost, it is all claimed, and the contract has
// what it owes.
func (r *randomRun) checkChannels(chain map[[2]string]spent) {
	delivered := map[*channel]uint64{}
	for _, p := range r.payments {
		if p.channel == nil {
			continue
		}
		if p.row.served() {
			delivered[p.channel] += uint64(p.row.amount) //nolint:gosec // positive
		}
		_, arrived := chain[[2]string{p.purse.address, p.nonce}]
		if kept := p.row != nil && (p.row.state == "delivered" || p.row.state == "deposited"); p.deposit > 0 && arrived != kept {
			r.wrong(p, chain, "the deposit is in the channel, or the ledger says that it is, but not both")
		}
	}
	charged := map[string]uint64{}
	for _, p := range r.purses {
		for _, c := range p.channels {
			charged[c.id] = uint64(r.Count("SELECT coalesce((SELECT charged FROM payment_channels WHERE id = $1), 0)",
				c.id)) //nolint:gosec // not negative
		}
	}
	var balances, claimed uint64
	count := 0
	for _, p := range r.purses {
		for _, c := range p.channels {
			state := r.Ledger.Channel(c.id)
			balances, claimed, count = balances+state.Balance, claimed+state.TotalClaimed, count+1
			if charged[c.id] != delivered[c] || state.TotalClaimed != charged[c.id] {
				r.offence("the payment channel %s was charged %d, its delivered calls cost %d, and %+v is on the chain", c.id, charged[c.id],
					delivered[c], state)
			}
		}
	}
	sums := r.Ledger.Received(devnet.Payee)
	if has := r.Ledger.Balance(x402.BatchSettlementContract); sums.Claimed != claimed || has != balances-sums.Settled {
		r.offence("the contract has %d and the payee claimed %+v, but the channels have %d, of which %d are claimed", has, sums, balances,
			claimed)
	}
	if n := r.Count(storetest.WrongChannelSums); n != 0 {
		r.offence("the sums of payment channels are not theirs for %d payees", n)
	}
	if n := r.Count("SELECT count(*) FROM payment_channels"); n > count {
		r.offence("the ledger has %d payment channels, but %d were opened", n, count)
	}
	r.T.Logf("%d payment channels were charged and claimed %d", count, claimed)
}

// locked is what a purse has in its payment channels.
func (r *randomRun) locked(p *purse) (sum uint64) {
	for _, c := range p.channels {
		sum += r.Ledger.Channel(c.id).Balance
	}
	return sum
}
