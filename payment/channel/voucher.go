package channel

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// maxDeadlocks is how often a transaction is repeated that the database ended because of others.
const maxDeadlocks = 3

// voucher is a payment that the ledger charges to a payment channel. It moves no money on the chain.
type voucher struct {
	*Scheme
	a       *payment.Attempt
	payload *x402.BatchPayment
	of      x402.BatchChecked // set by Check
}

func (v *voucher) Match(offers []x402.PaymentRequirements) (x402.PaymentRequirements, bool) {
	return x402.MatchBatch(v.offers(offers), v.payload)
}

func (v *voucher) Terms() x402.PaymentRequirements {
	config := v.payload.Payload.ChannelConfig
	amount, _ := strconv.ParseUint(v.payload.Accepted.Amount, 10, 64) // Check refuses 0
	return v.requirements(amount, config.Receiver, x402.ChannelTerms{ReceiverAuthorizer: config.ReceiverAuthorizer,
		WithdrawDelay: config.WithdrawDelay})
}

func (v *voucher) Check(requirements x402.PaymentRequirements, at time.Time, byKey bool) (checked payment.Checked, err error) {
	check := v.checker.CheckContract
	if byKey {
		check = v.checker.Check
	}
	v.of, err = check(requirements, v.payload, at)
	checked = checkedAs(v.of)
	checked.Unproven = v.payload.Payload.Type != x402.BatchDeposit && !v.chargedLately(v.of.ChannelID)
	if v.of.Type == x402.BatchRefund {
		checked.NoPayment = &x402.Invalid{Reason: x402.ReasonBatchPayloadType, Message: "this operation takes no refund; the GET operations do"}
	}
	return checked, err
}

// checkedAs names the payment as the ledger does.
func checkedAs(of x402.BatchChecked) payment.Checked {
	nonce := of.DepositNonce
	if of.Deposit == 0 {
		nonce = of.ChannelID + ":" + strconv.FormatUint(of.Max, 10)
	}
	return payment.Checked{
		Checked:  x402.Checked{Payer: of.Payer, Nonce: nonce, ValidBefore: of.ValidBefore, Conclusive: of.Conclusive},
		Identity: of.PayerAuthorizer,
	}
}

// PaidLately looks for the payment channel, whose key signs the voucher.
func (v *voucher) PaidLately() bool {
	return v.chargedLately(strings.ToLower(v.payload.Payload.Voucher.ChannelID))
}

func (v *voucher) Channel() string { return v.of.ChannelID }

// max is the voucher's cumulative amount.
func (v *voucher) max() int64 { return int64(v.of.Max) } //nolint:gosec // at most x402.MaxChannelAmount

func (v *voucher) Record(row *store.Payment) {
	cumulative := v.max()
	row.PaymentChannelID, row.CumulativeAmount, row.DepositAmount = &v.of.ChannelID, &cumulative, int64(v.of.Deposit) //nolint:gosec // as max
}

// Same reports whether the row was charged with the same voucher. It may have come with a deposit.
func (v *voucher) Same(row *store.Payment) bool { return v.a.SameNonce(row) || v.charges(row) }

// charges reports whether the row was charged with this voucher, which may come with another deposit now: the payer did not see the
// response to the first.
func (v *voucher) charges(row *store.Payment) bool {
	return row.Payer == v.a.Payer() && row.State == store.PaymentDelivered && v.pays(row) && *row.CumulativeAmount == v.max()
}

// pays reports whether the row was paid by this payment channel.
func (v *voucher) pays(row *store.Payment) bool {
	return row.PaymentChannelID != nil && *row.PaymentChannelID == v.of.ChannelID
}

// Find finds the payment whose deposit brought this voucher.
func (v *voucher) Find(ctx context.Context) (*store.Payment, error) {
	return v.store.PaymentOfVoucher(ctx, v.of.ChannelID, v.a.Payer(), v.max())
}

// Proves reports whether the voucher is for more than its payment channel was charged, so that it was never claimed.
func (v *voucher) Proves(ctx context.Context, row *store.Payment) (bool, error) {
	channel, err := v.channel(ctx)
	return v.pays(row) && channel != nil && v.max() > channel.Charged, err
}

// Decide adds what becomes of a voucher that was charged for another request, or for a secret. The next voucher is the proof for a secret,
// and its payer does not know which one that is.
func (v *voucher) Decide(row *store.Payment, proven bool) (payment.Action, error) {
	if row.State == store.PaymentDelivered && (!proven || v.Same(row) && !v.a.Owns(row)) {
		return payment.Correct, nil
	}
	return "", nil
}

// channel is the payment channel as the ledger has it, or nil.
func (v *voucher) channel(ctx context.Context) (*store.PaymentChannel, error) {
	return v.store.PaymentChannel(ctx, v.of.ChannelID, v.a.Payer())
}

// Charge charges the voucher and makes the effect in one transaction. No money moves, so there is no dry run: a rejection rolls
// everything back, and the same voucher stays good for the next request. It returns store.ErrStalePayment if the caller must
// try again, because a deposit is being settled or the payment channel has changed.
func (v *voucher) Charge(ctx context.Context, call *payment.Call, _ *store.Payment) (*payment.Receipt, error) {
	if err := v.barred(ctx); err != nil {
		return nil, err
	}
	charged, known := v.charged.Get(v.of.ChannelID)
	// This costs those who cannot pay one read, and the server no transaction. A former voucher, which may be public, does not wait for the
	// calls of the payment channel: a stranger would notice them.
	if !known || charged >= v.of.Max {
		if err := v.recordedMismatch(ctx); err != nil {
			return nil, err
		}
	}
	if err := call.Admitted(); err != nil {
		return nil, err
	}
	release, err := v.engine.Queue(ctx, v.of.ChannelID, errChannelBusy)
	if err != nil {
		return nil, err
	}
	defer release()
	if known && !v.next() { // a voucher that does not fit must not cost a read of messages
		if err := v.recordedMismatch(ctx); err != nil {
			return nil, err
		}
	}
	// From here on the call continues even if the caller hangs up: otherwise its work would be free.
	ctx, cancel := payment.Detach(ctx)
	defer cancel()
	receipt, err := v.chargeOnce(ctx, call)
	for tries := 1; store.Deadlocked(err) && tries <= maxDeadlocks; tries++ {
		receipt, err = v.chargeOnce(ctx, call)
	}
	if !errors.Is(err, store.ErrVoucherMismatch) {
		return receipt, err
	}
	v.charged.Change(v.of.ChannelID, 0)
	if err := v.recordedMismatch(ctx); err != nil {
		return nil, err
	}
	return nil, store.ErrStalePayment // it has changed since
}

// Chargeable returns why the voucher cannot be charged, as Charge would.
func (v *voucher) Chargeable(ctx context.Context) error {
	if err := v.barred(ctx); err != nil {
		return err
	}
	if v.chargedLately(v.of.ChannelID) && v.next() {
		return nil
	}
	return v.recordedMismatch(ctx)
}

// Compact implements [payment.Charger]. What a payer echoes is larger than the voucher.
func (v *voucher) Compact() {
	*v.payload = *v.payload.AsVoucher()
	v.payload.Accepted, v.payload.Resource, v.payload.Extensions = v.a.Requirements, nil, nil
}

// recordedMismatch returns why the voucher does not fit its payment channel, as mismatch.
func (v *voucher) recordedMismatch(ctx context.Context) error {
	channel, err := v.channel(ctx)
	if err != nil {
		return err
	}
	return v.mismatch(ctx, channel)
}

// chargeOnce makes the effect and charges the voucher.
func (v *voucher) chargeOnce(ctx context.Context, call *payment.Call) (*payment.Receipt, error) {
	row := v.a.Charged()
	charge := &store.VoucherCharge{Voucher: v.toCharge(), Payment: row}
	response, err := v.engine.Execute(ctx, call, store.Response{}, store.Closing{Charge: charge})
	_, refused := errors.AsType[*store.Refusal](err)
	_, busy := errors.AsType[*payment.Error](err) // it was not admitted
	switch {
	case err == nil:
	case refused, busy, errors.Is(err, store.ErrVoucherMismatch), errors.Is(err, store.ErrStalePayment), store.NotCommitted(err):
		return nil, err
	default: // also if the commit had no response
		return nil, payment.OutcomeUnknown(err)
	}
	payment.Crash("charged")
	v.engine.Count(row, payment.OutcomeDelivered)
	v.wasCharged(row)
	settled := v.settled(row, charge.Channel, uint64(row.Amount)) //nolint:gosec // positive
	return &payment.Receipt{Response: response.Body, Settled: settled}, nil
}

// toCharge is the voucher as the store needs it.
func (v *voucher) toCharge() store.Voucher {
	most := int64(math.MaxInt64)
	if v.MaxUnclaimed > 0 {
		most = int64(min(v.MaxUnclaimed, x402.MaxChannelAmount)) //nolint:gosec // fits
	}
	return store.Voucher{
		Channel: v.of.ChannelID, Payer: v.a.Payer(), Price: int64(v.a.Operation.Price), Max: v.max(), //nolint:gosec // a price
		MaxUnclaimed: most, ClaimSum: int64(v.ClaimSum), Signature: v.payload.Payload.Voucher.Signature, //nolint:gosec // a sum of money
	}
}

// wasCharged records that the payment channel was charged.
func (v *voucher) wasCharged(row *store.Payment) {
	v.engine.Paid(v.a)
	v.charged.Add(v.of.ChannelID, v.of.Max, payment.PaidFor)
	v.inStep()
	v.rememberGeneration()
	v.unclaimed.Add(row.Amount)
}

// Repeated is the first response's, with the present state of the payment channel. It returns store.ErrVoucherMismatch for a voucher that
// was not charged last, unless its payment identifier or key names the payment: then its payer keeps a journal, and has lost the response.
func (v *voucher) Repeated(ctx context.Context, row *store.Payment) (*x402.SettleResponse, error) {
	return v.repeated(ctx, row, v.Same(row), v.charges(row) && !v.a.Names(row))
}

// repeated is Repeated. Same tells whether the row is this very payment. With last the voucher must be the one that was charged last.
func (v *voucher) repeated(ctx context.Context, row *store.Payment, same, last bool) (*x402.SettleResponse, error) {
	if v.charges(row) {
		v.inStep()
	}
	channel, err := v.channel(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case channel == nil: // paid in another way; a deposit that is not settled is told as a payment channel without money
		free := *row
		free.DepositAmount = 0
		return v.settled(&free, v.newChannel(x402.Channel{}), 0), nil
	case last && (channel.Charged != *row.CumulativeAmount || v.beginsAgain(channel) && v.lacksDeposit(channel)):
		return nil, store.ErrVoucherMismatch
	case !same: // paid by an earlier payment: this one is not charged
		free := *row
		free.Transaction, free.DepositAmount = "", 0
		charged := uint64(0)
		if v.max() == channel.Charged {
			charged = v.a.Operation.Price // the client does not know of that charge: it lost the response to its deposit
		}
		return v.settled(&free, channel, charged), nil
	}
	channel.Charged = *row.CumulativeAmount                 // as in the first response
	return v.settled(row, channel, uint64(row.Amount)), nil //nolint:gosec // positive
}

// settled is the content of PAYMENT-RESPONSE for a call that a payment channel pays: what this response charges, and the
// channel. Clients add the amount to what they know to be charged, and reject it if the sum is not the channel's.
func (v *voucher) settled(row *store.Payment, channel *store.PaymentChannel, amount uint64) *x402.SettleResponse {
	state := stateOf(channel)
	return &x402.SettleResponse{
		Success: true, Transaction: row.Transaction, Network: v.a.Requirements.Network, Payer: v.a.Payer(), Amount: depositAmount(row),
		Extra: x402.BatchExtra{ChargedAmount: strconv.FormatUint(amount, 10), ChannelState: &state}.Encode(),
	}
}
