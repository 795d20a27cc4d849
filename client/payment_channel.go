package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/x402"
)

const (
	// defaultDepositCalls sizes a deposit if neither the caller nor the server suggests an amount: the price of so many
	// calls.
	defaultDepositCalls = 10
	// defaultMaxDelay is the longest withdrawal delay that is accepted by default: a week.
	defaultMaxDelay = 7 * 24 * time.Hour
	// maxLostDeposits is after how many deposits in a row that the server claims not to have received no more are made.
	// They may be in the channel, where they are locked until the payer withdraws them.
	maxLostDeposits = 3
	// relockTime limits the wait for the lock of a channel that other calls used meanwhile.
	relockTime = 15 * time.Second
	// busyPause is the pause before a payment is repeated because the server handles another one of the channel.
	busyPause = 500 * time.Millisecond
	// maxChannelTries limits how often one call is signed: the first time, and after corrections.
	maxChannelTries = 3
	// depositRoom is how long a pending deposit must still be valid to be sent again.
	depositRoom = x402.MinimumValidity + 5*time.Second
)

// zeroSalt is the salt of the official clients.
var zeroSalt = "0x" + strings.Repeat("0", 64)

// ErrNoPaymentChannel means that a 402 offers no payment channel that these PaymentChannels pay from. Nothing was signed;
// pay with another scheme.
var ErrNoPaymentChannel = errors.New("the server offers no payment channel that this wallet opens")

// errUnusable means that no voucher can be signed before the payer changes its settings. Nothing was charged.
var errUnusable = errors.New("the payment channel is unusable")

// DepositLimitError means that the channel needs a deposit that is not allowed. Nothing was signed.
type DepositLimitError struct {
	Needed, Allowed uint64 // atomic units
}

func (e *DepositLimitError) Error() string {
	return fmt.Sprintf("the payment channel needs a deposit of %s USD, the limit is %s USD", x402.FormatUSD(e.Needed),
		x402.FormatUSD(e.Allowed))
}

// PaymentChannels pays 402 responses from payment channels (x402 version 2, scheme batch-settlement). It opens one
// channel for each combination of payee, its terms and token, deposits when the balance is used up, and signs one voucher
// per call. A voucher allows the payee to claim what all calls cost together, so the payee can take no more than that,
// and the rest of the deposit only goes back to the wallet. It is safe for concurrent use; calls on one channel are made
// one after another.
//
// It never signs a voucher for more than what it knows to be charged, or has signed before, plus the price of the call.
// If the server asks for more, it must prove that this wallet signed it.
//
// Set the fields before the first call. [PaymentChannels.Pay] makes the payments.
type PaymentChannels struct {
	// Store keeps the channels. It should survive restarts: [NewFileChannels].
	Store PaymentChannelStore
	// MaxDeposit limits one deposit, in atomic units. Zero allows no deposit. A deposit that is not spent is locked until
	// the server refunds it, or the wallet withdraws it on the chain and waits for the delay.
	MaxDeposit uint64
	// Deposit is the amount of a deposit in atomic units. If it is 0, the deposit is what the server suggests, or ten
	// times the price. It is raised to what the call needs and lowered to MaxDeposit.
	Deposit uint64
	// MaxWithdrawDelay is the longest withdrawal delay of a channel. Zero means a week.
	MaxWithdrawDelay time.Duration
	// Salt separates channels of the same wallet and payee: 0x and 64 hex digits. "" means zero. Calls with different
	// salts can be made at the same time.
	Salt string
	// Networks are the chains and tokens, as [Payer.Networks]. If nil, they are USDC on Base and on Base Sepolia.
	Networks []x402.Network
	// Chain, if not nil, reads a channel's state if the server's differs from ours: [x402.Chain] does. Without it a lost
	// store needs a server that proves the newest voucher.
	Chain interface {
		Channel(ctx context.Context, id string) (x402.Channel, time.Time, error)
	}
	// Now is the clock. If nil, it is time.Now.
	Now func() time.Time

	signer x402.Signer
	// reserve is called before a voucher and perhaps a deposit are signed.
	reserve func(ctx context.Context, r Reservation) error
	// release ends a reservation whose voucher or deposit was not signed.
	release func(ctx context.Context, r Reservation)
	// heldBack is true if the server holds the request back for a while. Other calls use the channel meanwhile.
	heldBack bool
}

// NewPaymentChannels returns PaymentChannels whose payments a wallet signs.
func NewPaymentChannels(signer x402.Signer, store PaymentChannelStore, maxDeposit uint64) *PaymentChannels {
	return &PaymentChannels{
		Store: store, MaxDeposit: maxDeposit, signer: signer,
		reserve: func(context.Context, Reservation) error { return nil }, release: func(context.Context, Reservation) {},
	}
}

// Send sends the request with a PAYMENT-SIGNATURE header. It repeats the same header while the outcome is not known, as a
// [Payer] does, and returns the last response.
type Send func(ctx context.Context, payment string) (*http.Response, error)

// Price returns what the call costs from a payment channel, in atomic units. It returns [ErrNoPaymentChannel] if the 402
// offers none.
func (c *PaymentChannels) Price(required *x402.PaymentRequired) (uint64, error) {
	_, price, err := c.choose(required)
	return price, err
}

// Pay pays the call that a 402 response describes. left is the most that a deposit may be, together with MaxDeposit. Pay
// holds the channel until the response arrived, follows PAYMENT-RESPONSE, and signs again after a corrective 402.
//
// It returns the last response, whatever its status, and what the call was charged: the price if the outcome is not
// known. Before it signs anything it returns [ErrNoPaymentChannel] or a [*DepositLimitError]; then the call can be paid
// with another scheme. Other errors come from send or Store.
func (c *PaymentChannels) Pay(
	ctx context.Context, required *x402.PaymentRequired, left uint64, send Send,
) (response *http.Response, charged uint64, err error) {
	room := func(context.Context) (uint64, error) { return left, nil }
	return c.pay(ctx, required, withIdentifier(required.Extensions, NewIdentifier()), room, send)
}

// pay is Pay with the extensions of the payment. room returns the most that a deposit may be; it is called only before a deposit.
func (c *PaymentChannels) pay(
	ctx context.Context, required *x402.PaymentRequired, extensions map[string]jsontext.Value,
	room func(context.Context) (uint64, error), send Send,
) (response *http.Response, charged uint64, err error) {
	call, unlock, err := c.begin(ctx, required)
	if err != nil {
		return nil, 0, err
	}
	defer func() { unlock() }()
	call.room, call.extensions = room, extensions
	for try := 1; ; try++ {
		header, err := call.sign(ctx)
		if err != nil {
			return nil, 0, err
		}
		var response *http.Response
		if c.heldBack && !call.deposits && !call.assumed {
			response, unlock, err = call.sendUnlocked(ctx, header, send, unlock)
			if call.others > call.before.Charged { // other calls of this wallet were charged meanwhile: no correction by the server
				try = 0
			}
		} else {
			response, err = send(ctx, header)
		}
		if wasNotSent(err) {
			return nil, 0, errors.Join(err, call.save())
		}
		if err != nil || comeAgain(response.StatusCode, peek(response)) {
			return response, call.price, errors.Join(err, call.lost())
		}
		again, err := call.settle(ctx, response)
		if err != nil || !again || try == maxChannelTries {
			return response, call.charged, err
		}
		discard(response)
	}
}

// begin selects the offer, locks its channel and loads it.
func (c *PaymentChannels) begin(ctx context.Context, required *x402.PaymentRequired) (*channelCall, func(), error) {
	offer, price, err := c.choose(required)
	if err != nil {
		return nil, nil, err
	}
	signer, err := x402.NewChannelSigner(c.signer, cmp.Or(c.Salt, zeroSalt), offer)
	if err != nil {
		return nil, nil, err
	}
	unlock, err := c.Store.Lock(ctx, signer.ID)
	if err != nil {
		return nil, nil, err
	}
	stored, err := c.Store.Load(signer.ID)
	if err != nil {
		unlock()
		return nil, nil, err
	}
	call := &channelCall{channels: c, signer: signer, offer: offer, price: price, channel: stored, stored: stored,
		resource: &required.Resource}
	call.channel.Network, call.channel.Config = offer.Network, signer.Config
	return call, unlock, nil
}

// choose returns the first offer that it may pay, with the name and version of the token that we know.
func (c *PaymentChannels) choose(required *x402.PaymentRequired) (x402.PaymentRequirements, uint64, error) {
	longest := cmp.Or(c.MaxWithdrawDelay, defaultMaxDelay)
	for _, offer := range required.Accepts {
		terms, err := x402.TermsOf(offer)
		price, priceErr := strconv.ParseUint(offer.Amount, 10, 63)
		network, known := KnownNetwork(c.Networks, offer)
		if err != nil || priceErr != nil || !known || time.Duration(terms.WithdrawDelay)*time.Second > longest { //nolint:gosec // at most 30 days
			continue
		}
		return network.BatchRequirements(price, offer.PayTo, offer.MaxTimeoutSeconds, terms), price, nil
	}
	return x402.PaymentRequirements{}, 0, ErrNoPaymentChannel
}

// KnownNetwork returns the network and token of an offer, if it is one of networks, or of those that x402 knows if
// networks is nil.
func KnownNetwork(networks []x402.Network, offer x402.PaymentRequirements) (x402.Network, bool) {
	if networks == nil {
		network, _ := x402.LookupNetwork(offer.Network)
		networks = []x402.Network{network}
	}
	for _, network := range networks {
		if offer.Network == network.ID && strings.EqualFold(offer.Asset, network.Asset) {
			return network, true
		}
	}
	return x402.Network{}, false
}

func (c *PaymentChannels) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

// channelCall is one call that is paid from a channel whose lock it holds.
type channelCall struct {
	channels   *PaymentChannels
	signer     *x402.ChannelSigner
	offer      x402.PaymentRequirements
	price      uint64
	room       func(context.Context) (uint64, error) // that the budget has for a deposit
	resource   *x402.ResourceInfo
	extensions map[string]jsontext.Value

	channel  PaymentChannel
	stored   PaymentChannel // as in the store
	before   PaymentChannel // when the last payment was signed
	deposits bool           // the payment that was sent last brings channel.Pending
	assumed  bool           // the payment that was sent last assumes that channel.Pending arrived
	refused  bool           // the server has refused such a payment
	onChain  *x402.Channel  // the last state that was read from the chain
	charged  uint64
	others   uint64 // what was charged in all when the channel was locked again after sendUnlocked
}
