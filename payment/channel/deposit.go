package channel

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// deposit is a voucher that comes with a deposit. It goes through the states of every payment that moves money. It is safer for the payer:
// money in its payment channel is not charged, so a call that is rejected after the settlement costs nothing.
type deposit struct{ *voucher }

var (
	_ payment.Mover   = (*deposit)(nil)
	_ payment.Charger = (*deposit)(nil)
	_ payment.Charger = (*voucher)(nil)
)

// PaidLately looks for the wallet that signs the deposit.
func (d *deposit) PaidLately() bool { return d.engine.PaidLately(d.payload.PayerAddress()) }

// Same reports whether the row is of the same deposit.
func (d *deposit) Same(row *store.Payment) bool { return d.a.SameNonce(row) }

// Decide adds what becomes of a deposit that was kept, and of a voucher as in voucher.Decide.
func (d *deposit) Decide(row *store.Payment, proven bool) (payment.Action, error) {
	switch {
	case row.State == store.PaymentDelivered && (!proven || (d.Same(row) || d.charges(row)) && !d.a.Owns(row)):
		return payment.Correct, nil
	case row.State != store.PaymentDeposited || !d.Same(row):
		return "", nil
	case d.a.NothingNew() != nil:
		return payment.Reject, d.a.NothingNew()
	case d.a.Expired != nil && d.max() != *row.CumulativeAmount:
		return payment.Reject, d.a.Expired // of former terms, only the voucher that came with the deposit
	}
	return payment.Charge, nil
}

// Moves is the deposit.
func (d *deposit) Moves() uint64 { return d.of.Deposit }

// Prepare returns the payment channel that the deposit opens or adds to, if the deposit and its voucher fit and the wallet
// has the deposit. A channel that the ledger does not know starts from what was claimed on the chain. That the wallet paid lately proves
// nothing: deposits are larger than prices.
func (d *deposit) Prepare(ctx context.Context) (*store.PaymentChannel, error) {
	if err := d.barred(ctx); err != nil {
		return nil, err
	}
	if least := d.terms.LeastDeposit(); d.of.Deposit < least {
		return nil, d.engine.Refused(d.a.Operation, x402.ReasonBatchDepositBelowMin, fmt.Sprintf(
			"the deposit of %d atomic units is too small and nothing was charged; deposit at least %d, a tenth of extra.minDeposit, or pay "+
				"with scheme exact",
			d.of.Deposit, least))
	}
	channel, err := d.channel(ctx)
	if err != nil {
		return nil, err
	}
	if channel != nil {
		if err := d.mismatch(ctx, channel); err != nil {
			return nil, err
		}
	}
	err = d.engine.Covered(ctx, d.a, d, func(has string) error {
		d.exactForNow() // the wallet may have the price
		return d.refusedFor(x402.ReasonBatchInsufficientBalance, has+fmt.Sprintf(
			"deposit of %d, and nothing was charged; pay with scheme exact, sign a smaller deposit, or add funds", d.of.Deposit))
	})
	if err != nil || channel != nil {
		return channel, err
	}
	found, err := d.before(ctx)
	if err != nil {
		return nil, err
	}
	channel = d.newChannel(found)
	if channel.Claimed > 0 {
		d.claimedElsewhere(ctx, channel)
	}
	if bad, ok := errors.AsType[*x402.Invalid](d.of.Fits(sumsOf(channel), d.a.Operation.Price)); ok {
		return nil, d.corrective(ctx, channel, bad)
	}
	return channel, nil
}

// before returns the payment channel on the chain before a deposit.
func (d *deposit) before(ctx context.Context) (x402.Channel, error) {
	channel, err := d.chainState(ctx, d.of.ChannelID)
	if err == nil {
		return channel, nil
	}
	verdict, err := d.engine.Verified(ctx, d.a, d)
	if err != nil {
		return x402.Channel{}, err
	}
	if channel, err = x402.ReportedChannel(verdict.Extra, d.of.ChannelID); err != nil {
		return x402.Channel{}, d.engine.Facilitator.Unavailable(err)
	}
	return channel, nil
}

func (d *deposit) Verify(ctx context.Context) (*x402.VerifyResponse, error) {
	return d.engine.Facilitator.Verify(ctx, func(ctx context.Context, f payment.Facilitator) (*x402.VerifyResponse, error) {
		return f.VerifyBatch(ctx, d.payload, d.a.Requirements)
	})
}

func (d *deposit) Settle(ctx context.Context) (*x402.SettleResponse, error) {
	return d.engine.Facilitator.Settle(ctx, func(ctx context.Context, f payment.Facilitator) (*x402.SettleResponse, error) {
		return f.SettleDeposit(ctx, d.payload, d.a.Requirements)
	})
}

// Judge: the nonce of a deposit names its channel, so the money is in the channel whoever brought it. Only the blockchain can show that:
// the balance of the channel, which the facilitator tells, may have contained as much before.
func (d *deposit) Judge(used x402.AuthorizationState, _ *store.Payment) string {
	if used.Amount == d.of.Deposit &&
		(strings.EqualFold(used.To, x402.DepositCollectorContract) || strings.EqualFold(used.To, x402.BatchSettlementContract)) {
		return ""
	}
	return "the nonce was used for another transfer"
}

func (*deposit) Expired() string { return x402.ReasonBatchValidBefore }

// Doubts: a deposit that is reported and never mined would be credit for many calls, and no claim would succeed.
func (d *deposit) Doubts(ctx context.Context, settled *x402.SettleResponse) bool {
	found, err := d.engine.MovedBy(ctx, d.a, settled.Transaction)
	return err != nil || d.Judge(found, nil) != ""
}

// Deliver records the deposit in its payment channel, charges the voucher, makes the effect and closes the payment, in
// one transaction. If the operation rejects the call, or the voucher does not fit any more, only the deposit is recorded.
func (d *deposit) Deliver(
	ctx context.Context, call *payment.Call, row *store.Payment, settled *x402.SettleResponse, response store.Response,
) (*payment.Receipt, error) {
	transaction := settled.Transaction
	found, err := x402.ReportedChannel(settled.Extra, d.of.ChannelID)
	if err != nil {
		found, err = d.chainState(ctx, d.of.ChannelID)
	}
	if err != nil {
		return nil, d.engine.NotDelivered(ctx, row, transaction, err)
	}
	ctx, cancel := d.store.LimitCall(context.WithoutCancel(ctx))
	defer cancel()
	charge := &store.DepositCharge{Voucher: d.toCharge(), Chain: MirrorOf(found)}
	response, refusal, err := d.engine.CommitDelivery(ctx, call, row, transaction, response, charge)
	row.Transaction = transaction
	switch {
	case err == nil && refusal == nil:
		d.wasCharged(row)
		d.retire(ctx, charge.Channel)
		return &payment.Receipt{Response: response.Body, Settled: d.settled(row, charge.Channel, d.a.Operation.Price)}, nil
	case err != nil && !errors.Is(err, store.ErrVoucherMismatch):
		return nil, err
	}
	reason := x402.ReasonBatchCumulativeMismatch
	if refusal != nil {
		reason = refusal.Code
	}
	channel, err := d.store.KeepDeposit(ctx, row, transaction, reason, charge.Chain)
	if err != nil {
		return nil, d.engine.NotDelivered(ctx, row, transaction, err)
	}
	d.engine.Count(row, payment.OutcomeDeposited)
	kept := d.settled(row, channel, 0)
	if refusal != nil {
		return nil, rejectedDeposit(refusal, kept)
	}
	return nil, d.depositOnly(ctx, channel, kept)
}

// depositOnly returns the 402 for a deposit that arrived with a voucher that does not fit the channel any more.
func (d *deposit) depositOnly(ctx context.Context, channel *store.PaymentChannel, settled *x402.SettleResponse) *payment.Error {
	bad := &x402.Invalid{Reason: x402.ReasonBatchCumulativeMismatch,
		Message: "the deposit is in the payment channel, but its voucher does not fit the channel and nothing was charged; sign a new voucher"}
	if invalid, ok := errors.AsType[*x402.Invalid](d.of.Fits(sumsOf(channel), d.a.Operation.Price)); ok {
		bad = invalid
	}
	kept := d.present(ctx, channel, bad) // the deposit was signed by the payer
	kept.Settled = settled
	return kept
}

// rejectedDeposit returns the error for a call that was rejected after its deposit settled.
func rejectedDeposit(refusal *store.Refusal, settled *x402.SettleResponse) *payment.Error {
	return &payment.Error{
		Code: payment.CodeRejected, Refusal: refusal, Settled: settled,
		Message: refusal.Message + ". The deposit is in your payment channel and nothing was charged: the same voucher pays for the next call.",
	}
}

// Charge pays with the voucher of a deposit that has arrived for a call that was then rejected. PAYMENT-RESPONSE
// reports the deposit too: the payer may have lost the first one.
func (d *deposit) Charge(ctx context.Context, call *payment.Call, row *store.Payment) (*payment.Receipt, error) {
	of := d.of
	of.Deposit, of.Type, of.Conclusive = 0, x402.BatchVoucher, true
	again, payload := *call, d.payload.AsVoucher()
	again.Attempt = d.a.With(payload, checkedAs(of), func(a *payment.Attempt) payment.Payment { return &voucher{d.Scheme, a, payload, of} })
	receipt, err := d.engine.Pay(ctx, &again)
	if refusal, ok := errors.AsType[*store.Refusal](err); ok {
		channel, lookErr := d.channel(ctx)
		if lookErr != nil || channel == nil {
			return nil, err
		}
		return nil, rejectedDeposit(refusal, d.settled(row, channel, 0))
	}
	if err == nil {
		receipt.Settled.Transaction, receipt.Settled.Amount = row.Transaction, depositAmount(row)
	}
	return receipt, err
}

// Repeated is the first response's, as of a voucher. The same voucher with another deposit repeats a payment whose response was lost,
// unless the channel was charged since: then a client that lost its state may want the same again.
func (d *deposit) Repeated(ctx context.Context, row *store.Payment) (*x402.SettleResponse, error) {
	same := d.Same(row)
	return d.repeated(ctx, row, same, d.charges(row) && !same && !d.a.Operation.Secret && !d.a.Names(row))
}

// depositAmount is what a payment added to its channel, in JSON: "0" for a voucher, which moves nothing on the chain.
func depositAmount(row *store.Payment) string { return strconv.FormatInt(row.DepositAmount, 10) }
