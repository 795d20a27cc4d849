package payment

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// channelScheme is the x402 scheme "batch-settlement": a deposit into a payment channel, from which vouchers pay. The methods here
// handle deposits, which move money. voucher.go charges vouchers, which move none.
type channelScheme struct {
	transfers
	terms       x402.ChannelTerms
	checker     x402.BatchChecker
	keys        map[string]*ecdsa.PrivateKey // of our authorizers, also of former ones, by address in lower case
	unsupported atomic.Bool                  // the facilitator says that it does not settle payment channels
}

func newChannelScheme(of transfers) (*channelScheme, error) {
	config := of.config
	checker, err := x402.NewBatchChecker(config.Network)
	if err != nil {
		return nil, err
	}
	seconds := int64(config.WithdrawDelay / time.Second)
	if seconds < x402.MinWithdrawDelay || seconds > x402.MaxWithdrawDelay {
		return nil, fmt.Errorf("the withdraw delay of payment channels is %s; it must be from %d to %d seconds",
			config.WithdrawDelay, x402.MinWithdrawDelay, x402.MaxWithdrawDelay)
	}
	keys := map[string]*ecdsa.PrivateKey{}
	for _, key := range append([]*ecdsa.PrivateKey{config.Authorizer}, config.FormerAuthorizers...) {
		keys[strings.ToLower(evm.PubkeyToAddress(key.PublicKey).Hex())] = key
	}
	if keys[strings.ToLower(config.PayTo)] != nil {
		return nil, errors.New("the authorizer's key is that of the payee; use a new key that holds no money")
	}
	authorizer := evm.PubkeyToAddress(config.Authorizer.PublicKey).Hex()
	terms := x402.ChannelTerms{ReceiverAuthorizer: authorizer, WithdrawDelay: uint64(seconds), MinDeposit: config.MinDeposit} //nolint:gosec // positive
	return &channelScheme{transfers: of, terms: terms, checker: checker, keys: keys}, nil
}

// scope is what this server can sign claims and refunds for.
func (b *channelScheme) scope() store.ChannelScope {
	return store.ChannelScope{Network: b.config.Network.ID, Asset: strings.ToLower(b.config.Network.Asset), Authorizers: slices.Sorted(maps.Keys(b.keys))}
}

// requirementsOf returns payment requirements with the terms of a payment channel, which may be former ones of ours.
func (b *channelScheme) requirementsOf(channel *store.PaymentChannel) x402.PaymentRequirements {
	terms := x402.ChannelTerms{ReceiverAuthorizer: channel.ReceiverAuthorizer, WithdrawDelay: uint64(channel.WithdrawDelay)} //nolint:gosec // positive
	return b.config.Network.BatchRequirements(1, channel.PayTo, maxTimeoutSeconds, terms)
}

func (b *channelScheme) Requirements(price uint64) x402.PaymentRequirements {
	return b.config.Network.BatchRequirements(price, b.config.PayTo, maxTimeoutSeconds, b.terms)
}

// Match compares the payment with the offers of this scheme.
func (b *channelScheme) Match(offers []x402.PaymentRequirements, payload payload) (x402.PaymentRequirements, bool) {
	return x402.MatchBatch(offers, payload.channel)
}

// Terms returns the terms of the payment channel.
func (b *channelScheme) Terms(payload payload) x402.PaymentRequirements {
	config := payload.channel.Payload.ChannelConfig
	amount, _ := strconv.ParseUint(payload.channel.Accepted.Amount, 10, 64) // Check refuses 0
	return b.config.Network.BatchRequirements(amount, config.Receiver, maxTimeoutSeconds,
		x402.ChannelTerms{ReceiverAuthorizer: config.ReceiverAuthorizer, WithdrawDelay: config.WithdrawDelay})
}

// CheckKey runs the checks of a payer that signs its deposits with its own key.
func (b *channelScheme) CheckKey(requirements x402.PaymentRequirements, payload payload) (checked, error) {
	byKey, err := b.checker.Check(requirements, payload.channel, b.now())
	return channelChecked(byKey), err
}

// Check runs the checks that need no I/O. A deposit with 65 bytes of signature that are not by the payer's key is invalid
// unless the payer is a contract: see exact.Check.
func (b *channelScheme) Check(ctx context.Context, requirements x402.PaymentRequirements, payload payload) (checked, error) {
	if payload.channel.Payload.Type == x402.BatchRefund {
		return checked{}, &x402.Invalid{Reason: x402.ReasonBatchPayloadType, Message: "this operation takes no refund; the GET operations do"}
	}
	byKey, err := b.CheckKey(requirements, payload)
	bad, isBad := errors.AsType[*x402.Invalid](err)
	if !isBad || bad.Reason != x402.ReasonBatchDepositSignature {
		return byKey, err
	}
	unsigned, termsErr := b.checker.CheckContract(requirements, payload.channel, b.now())
	if termsErr != nil {
		return channelChecked(unsigned), termsErr
	}
	return b.ofContract(ctx, payload, byKey, channelChecked(unsigned), err)
}

// channelChecked names the payment as the ledger does.
func channelChecked(of x402.BatchChecked) checked {
	nonce := of.DepositNonce
	if of.Deposit == 0 {
		nonce = voucherNonce(of.ChannelID, of.Max)
	}
	return checked{Checked: x402.Checked{Payer: of.Payer, Nonce: nonce, ValidBefore: of.ValidBefore, Conclusive: of.Conclusive}, channel: &of}
}

// voucherNonce is the nonce of a voucher in the ledger.
func voucherNonce(channelID string, cumulative uint64) string {
	return channelID + ":" + strconv.FormatUint(cumulative, 10)
}

// Restore checks the deposit against its own terms: those of the server may have changed since.
func (b *channelScheme) Restore(attempt *Attempt, row *store.Payment) error {
	config := attempt.payload.channel.Payload.ChannelConfig
	terms := x402.ChannelTerms{ReceiverAuthorizer: config.ReceiverAuthorizer, WithdrawDelay: config.WithdrawDelay}
	attempt.requirements = b.config.Network.BatchRequirements(uint64(row.Amount), row.PayTo, maxTimeoutSeconds, terms) //nolint:gosec // positive
	of, err := b.checker.CheckContract(attempt.requirements, attempt.payload.channel, row.CreatedAt)
	if late, ok := errors.AsType[*x402.Invalid](err); err != nil && (!ok || !late.OutOfTime) {
		return err
	}
	attempt.channel = &of
	return nil
}

// Fund checks that the wallet has the deposit. That it paid lately proves nothing: deposits are larger than prices.
func (b *channelScheme) Fund(ctx context.Context, a *Attempt) error {
	if !a.Conclusive { // only the chain can judge the signature
		return b.verify(ctx, a)
	}
	return b.covers(ctx, a, a.channel.Deposit, b.verify, &x402.Invalid{Reason: x402.ReasonBatchInsufficientBalance,
		Message: "the balance of the wallet is below the deposit and nothing was charged; add funds, or sign a smaller deposit"})
}

// Fresh asks the chain, because anybody may have brought the deposit there.
func (b *channelScheme) Fresh(ctx context.Context, a *Attempt) (bool, error) {
	return b.fresh(ctx, a, b.verify)
}

// verify asks the facilitator to check the payment against the chain.
func (b *channelScheme) verify(ctx context.Context, a *Attempt) error {
	return b.verdict(b.facilitator.VerifyBatch(ctx, a.payload.channel, a.requirements))
}

// errNotReported means that the facilitator responds, but rejects the voucher with which it is asked for the channel.
var errNotReported = errors.New("the facilitator does not report the payment channel")

// onChain returns the payment channel as the blockchain endpoint sees it, else as the facilitator does.
func (b *channelScheme) onChain(ctx context.Context, a *Attempt) (x402.Channel, error) {
	asking, cancel := context.WithTimeout(ctx, chainTimeout)
	defer cancel()
	channel, _, err := b.chain.Channel(asking, a.channel.ChannelID)
	if err == nil {
		return channel, nil
	}
	verdict, verifyErr := b.facilitator.VerifyBatch(ctx, a.payload.channel.AsVoucher(), a.requirements)
	switch {
	case verifyErr != nil:
		return x402.Channel{}, errors.Join(err, verifyErr)
	case !verdict.IsValid:
		return x402.Channel{}, fmt.Errorf("%w: %s; the blockchain endpoint: %w", errNotReported, verdict.InvalidReason, err)
	}
	return x402.ReportedChannel(verdict.Extra, a.channel.ChannelID)
}

// Settle asks the facilitator to bring the deposit to the chain. If an earlier attempt may have brought it, or if the
// facilitator rejects it, because anybody may have, the channel itself is looked at.
func (b *channelScheme) Settle(ctx context.Context, a *Attempt, row *store.Payment) (settlement, error) {
	if row.Attempts > 1 {
		if arrived, err := b.arrived(ctx, a, row); err == nil || !errors.Is(err, errStillOpen) {
			return arrived, err
		}
	}
	settled, err := b.timed(ctx, row, func(ctx context.Context) (*x402.SettleResponse, error) {
		return b.facilitator.SettleDeposit(ctx, a.payload.channel, a.requirements)
	})
	switch {
	case err != nil:
		return settlement{}, err
	case settled.Success:
		moved := settlement{transaction: settled.Transaction}
		if channel, err := x402.ReportedChannel(settled.Extra, a.channel.ChannelID); err == nil {
			moved.channel = &channel
		}
		return moved, nil
	}
	arrived, err := b.arrived(ctx, a, row)
	if errors.Is(err, errStillOpen) {
		if row.Attempts == 1 && !x402.Inconclusive(settled.ErrorReason) {
			return settlement{}, &refusedSettlement{settled.ErrorReason}
		}
		return settlement{}, &unclearSettlement{Unclear: store.Unclear{Reason: settled.ErrorReason, Sent: true}}
	}
	return arrived, err
}

// arrived tells what became of a deposit, in the form of Settle. It returns errStillOpen if the deposit is not on the chain
// and may still get there. The nonce of a deposit names its channel, so the money is in the channel whoever brought it. Only the
// blockchain can show that: the balance of the channel, which the facilitator tells, may have contained as much before.
func (b *channelScheme) arrived(ctx context.Context, a *Attempt, row *store.Payment) (settlement, error) {
	asking, cancel := context.WithTimeout(ctx, chainTimeout)
	defer cancel()
	state, err := b.chain.Authorization(asking, row.Asset, row.Payer, row.Nonce, row.CreatedAt)
	switch {
	case err != nil:
		return settlement{}, &unclearSettlement{store.Unclear{Reason: "the blockchain endpoint is unavailable", Sent: true}, err}
	case state.Used && state.Amount == a.channel.Deposit &&
		(strings.EqualFold(state.To, x402.DepositCollectorContract) || strings.EqualFold(state.To, x402.BatchSettlementContract)):
		return settlement{transaction: state.Transaction}, nil
	case state.Used:
		return settlement{}, &refusedSettlement{"the nonce was used for another transfer"}
	case state.Cancelled:
		return settlement{}, &refusedSettlement{"the authorization was cancelled"}
	case state.ChainTime.After(row.ValidBefore):
		return settlement{}, &refusedSettlement{x402.ReasonBatchValidBefore}
	}
	return settlement{}, errStillOpen
}
