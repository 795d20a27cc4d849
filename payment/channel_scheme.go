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

	"golang.org/x/time/rate"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// ChannelScheme is the x402 scheme "batch-settlement": a deposit into a payment channel, from which vouchers pay. The methods here
// handle deposits, which move money. voucher.go charges vouchers, which move none.
type ChannelScheme struct {
	transfers
	terms       x402.ChannelTerms
	checker     x402.BatchChecker
	keys        map[string]*ecdsa.PrivateKey // of our authorizers, also of former ones, by address in lower case
	unsupported atomic.Bool                  // the facilitator says that it does not settle payment channels
	started     time.Time                    // see misfit

	charged      recent[string, uint64]   // what payment channels were charged lately, by id; 0 if this is not certain
	lost         recent[string, struct{}] // clients that lost the state of their payment channel: see challenge
	unclaimed    unclaimed
	adoptions    adoptions
	cheapRefunds clientRates
	payouts      payouts
}

func newChannelScheme(of transfers) (*ChannelScheme, error) {
	config := of.engine.config
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
	c := &ChannelScheme{
		transfers: of, terms: terms, checker: checker, keys: keys, started: time.Now(),
		charged: newRecent[string, uint64](maxPayers), lost: newRecent[string, struct{}](maxLost), adoptions: newAdoptions(),
		cheapRefunds: newClientRates(rate.Every(time.Hour/cheapRefunds), cheapRefunds, time.Hour),
	}
	c.payouts.add(strings.ToLower(config.PayTo)) // a claim before a restart may not be paid out
	return c, nil
}

// scope is what this server can sign claims and refunds for.
func (c *ChannelScheme) scope() store.ChannelScope {
	return store.ChannelScope{Network: c.engine.config.Network.ID, Asset: strings.ToLower(c.engine.config.Network.Asset), Authorizers: slices.Sorted(maps.Keys(c.keys))}
}

// requirementsOf returns payment requirements with the terms of a payment channel, which may be former ones of ours.
func (c *ChannelScheme) requirementsOf(channel *store.PaymentChannel) x402.PaymentRequirements {
	terms := x402.ChannelTerms{ReceiverAuthorizer: channel.ReceiverAuthorizer, WithdrawDelay: uint64(channel.WithdrawDelay)} //nolint:gosec // positive
	return c.engine.config.Network.BatchRequirements(1, channel.PayTo, maxTimeoutSeconds, terms)
}

func (c *ChannelScheme) Requirements(price uint64) x402.PaymentRequirements {
	return c.engine.config.Network.BatchRequirements(price, c.engine.config.PayTo, maxTimeoutSeconds, c.terms)
}

// Match compares the payment with the offers of this scheme.
func (c *ChannelScheme) Match(offers []x402.PaymentRequirements, payload payload) (x402.PaymentRequirements, bool) {
	return x402.MatchBatch(offers, payload.channel)
}

// Terms returns the terms of the payment channel.
func (c *ChannelScheme) Terms(payload payload) x402.PaymentRequirements {
	config := payload.channel.Payload.ChannelConfig
	amount, _ := strconv.ParseUint(payload.channel.Accepted.Amount, 10, 64) // Check refuses 0
	return c.engine.config.Network.BatchRequirements(amount, config.Receiver, maxTimeoutSeconds,
		x402.ChannelTerms{ReceiverAuthorizer: config.ReceiverAuthorizer, WithdrawDelay: config.WithdrawDelay})
}

// CheckKey runs the checks of a payer that signs its deposits with its own key.
func (c *ChannelScheme) CheckKey(requirements x402.PaymentRequirements, payload payload) (checked, error) {
	byKey, err := c.checker.Check(requirements, payload.channel, c.engine.store.Now())
	return channelChecked(byKey), err
}

// Check runs the checks that need no I/O. A deposit with 65 bytes of signature that are not by the payer's key is invalid
// unless the payer is a contract: see exact.Check.
func (c *ChannelScheme) Check(ctx context.Context, requirements x402.PaymentRequirements, payload payload) (checked, error) {
	if payload.channel.Payload.Type == x402.BatchRefund {
		return checked{}, &x402.Invalid{Reason: x402.ReasonBatchPayloadType, Message: "this operation takes no refund; the GET operations do"}
	}
	byKey, err := c.CheckKey(requirements, payload)
	bad, isBad := errors.AsType[*x402.Invalid](err)
	if !isBad || bad.Reason != x402.ReasonBatchDepositSignature {
		return byKey, err
	}
	unsigned, termsErr := c.checker.CheckContract(requirements, payload.channel, c.engine.store.Now())
	if termsErr != nil {
		return channelChecked(unsigned), termsErr
	}
	return c.ofContract(ctx, payload, byKey, channelChecked(unsigned), err)
}

// channelChecked names the payment as the ledger does.
func channelChecked(of x402.BatchChecked) checked {
	nonce := of.DepositNonce
	if of.Deposit == 0 {
		nonce = voucherNonce(of.ChannelID, of.Max)
	}
	return checked{
		Checked:  x402.Checked{Payer: of.Payer, Nonce: nonce, ValidBefore: of.ValidBefore, Conclusive: of.Conclusive},
		identity: of.PayerAuthorizer, channel: &of,
	}
}

// voucherNonce is the nonce of a voucher in the ledger.
func voucherNonce(channelID string, cumulative uint64) string {
	return channelID + ":" + strconv.FormatUint(cumulative, 10)
}

// PaidLately looks for the wallet that signs the deposit.
func (c *ChannelScheme) PaidLately(payload payload) bool {
	return c.engine.PaidLately(payload.payer())
}

func (c *ChannelScheme) Moves() bool { return true }

// Record records the payment channel, the voucher and the deposit.
func (c *ChannelScheme) Record(a *Attempt, row *store.Payment) {
	cumulative, deposit := int64(a.channel.Max), int64(a.channel.Deposit) //nolint:gosec // at most x402.MaxChannelAmount
	row.PaymentChannelID, row.CumulativeAmount, row.DepositAmount = &a.channel.ChannelID, &cumulative, deposit
}

// Restore checks the deposit against its own terms: those of the server may have changed since.
func (c *ChannelScheme) Restore(attempt *Attempt, row *store.Payment) error {
	config := attempt.payload.channel.Payload.ChannelConfig
	terms := x402.ChannelTerms{ReceiverAuthorizer: config.ReceiverAuthorizer, WithdrawDelay: config.WithdrawDelay}
	attempt.requirements = c.engine.config.Network.BatchRequirements(uint64(row.Amount), row.PayTo, maxTimeoutSeconds, terms) //nolint:gosec // positive
	of, err := c.checker.CheckContract(attempt.requirements, attempt.payload.channel, row.CreatedAt)
	if late, ok := errors.AsType[*x402.Invalid](err); err != nil && (!ok || !late.OutOfTime) {
		return err
	}
	attempt.channel, attempt.identity = &of, of.PayerAuthorizer
	return nil
}

// fund checks that the wallet has the deposit. That it paid lately proves nothing: deposits are larger than prices.
func (c *ChannelScheme) fund(ctx context.Context, a *Attempt) error {
	if !a.Conclusive { // only the chain can judge the signature
		return c.verify(ctx, a)
	}
	return c.covers(ctx, a, a.channel.Deposit, c.verify, &x402.Invalid{Reason: x402.ReasonBatchInsufficientBalance,
		Message: "the balance of the wallet is below the deposit and nothing was charged; add funds, or sign a smaller deposit"})
}

// Proves asks the chain, because anybody may have brought the deposit there.
func (c *ChannelScheme) Proves(ctx context.Context, a *Attempt, _ *store.Payment) (bool, error) {
	return c.fresh(ctx, a, c.verify)
}

// verify asks the facilitator to check the payment against the chain.
func (c *ChannelScheme) verify(ctx context.Context, a *Attempt) error {
	return c.verdict(c.engine.facilitator.VerifyBatch(ctx, a.payload.channel, a.requirements))
}

// errNotReported means that the facilitator responds, but rejects the voucher with which it is asked for the channel.
var errNotReported = errors.New("the facilitator does not report the payment channel")

// onChain returns the payment channel as the blockchain endpoint sees it, else as the facilitator does.
func (c *ChannelScheme) onChain(ctx context.Context, a *Attempt) (x402.Channel, error) {
	asking, cancel := context.WithTimeout(ctx, chainTimeout)
	defer cancel()
	channel, _, err := c.chain.Channel(asking, a.channel.ChannelID)
	if err == nil {
		return channel, nil
	}
	verdict, verifyErr := c.engine.facilitator.VerifyBatch(ctx, a.payload.channel.AsVoucher(), a.requirements)
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
func (c *ChannelScheme) Settle(ctx context.Context, a *Attempt, row *store.Payment) (settlement, error) {
	if row.Attempts > 1 {
		if arrived, err := c.arrived(ctx, a, row); err == nil || !errors.Is(err, errStillOpen) {
			return arrived, err
		}
	}
	settled, err := c.timed(ctx, row, func(ctx context.Context) (*x402.SettleResponse, error) {
		return c.engine.facilitator.SettleDeposit(ctx, a.payload.channel, a.requirements)
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
	arrived, err := c.arrived(ctx, a, row)
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
func (c *ChannelScheme) arrived(ctx context.Context, a *Attempt, row *store.Payment) (settlement, error) {
	asking, cancel := context.WithTimeout(ctx, chainTimeout)
	defer cancel()
	state, err := c.chain.Authorization(asking, row.Asset, row.Payer, row.Nonce, row.CreatedAt)
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
