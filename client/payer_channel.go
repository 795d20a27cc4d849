package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/x402"
)

// depositPause is the pause before the next deposit after a server refused a payment from a payment channel, mostly because the
// wallet has too little money: servers limit unpaid calls.
const depositPause = 10 * time.Minute

// userChannels is the default store of all Payers of this process.
var userChannels = sync.OnceValues(func() (*FileChannels, error) {
	folder, err := os.UserConfigDir()
	if err != nil {
		return nil, err
	}
	return NewFileChannels(filepath.Join(folder, "parley", "payment-channels"))
})

// paymentChannels returns p.Channels with the Payer's defaults, or nil if there are none. If the default store cannot be
// opened, for example because the user has no home directory, calls are paid with transfers.
func (p *Payer) paymentChannels() *PaymentChannels {
	if p.Channels == nil {
		return nil
	}
	channels := *p.Channels
	if channels.Networks == nil {
		channels.Networks = p.Networks
	}
	if channels.Store == nil {
		store, err := userChannels()
		if err != nil {
			return nil
		}
		channels.Store = store
	}
	return &channels
}

// payFromChannel pays from a payment channel. If open is true, nothing was charged and the call may be paid with another
// scheme; there is then either the server's 402 or an error.
func (c *purchase) payFromChannel(
	ctx context.Context, required *x402.PaymentRequired, extensions map[string]jsontext.Value,
) (response *http.Response, open bool, err error) {
	channels := c.paymentChannels()
	if channels == nil {
		return nil, true, ErrNoPaymentChannel
	}
	price, err := channels.Price(required)
	if err != nil {
		return nil, errors.Is(err, ErrNoPaymentChannel), err
	}
	var reserved Reservation
	channels.reserve = func(ctx context.Context, r Reservation) error {
		r.ID = c.id
		c.offer, reserved = r.Offer, r
		return c.Budget.Reserve(ctx, r)
	}
	channels.release = func(ctx context.Context, r Reservation) {
		r.ID = c.id
		release(ctx, c.Budget, r, false)
	}
	room := func(ctx context.Context) (uint64, error) {
		left, err := c.Budget.Left(ctx)
		return c.depositRoom(left, price), err
	}
	channels.heldBack = heldBack(c.request) > 0
	var signed bool
	send := func(ctx context.Context, payment string) (*http.Response, error) {
		if err := c.note(ctx, reserved, payment); err != nil {
			return nil, err
		}
		signed = true
		return c.insist(c.request, c.body, payment)
	}
	response, c.charged, err = channels.pay(ctx, required, extensions, room, send)
	if !signed {
		c.charged = 0
	}
	if response != nil {
		c.closed = !comeAgain(response.StatusCode, peek(response))
		// If the channel could not be stored, the server proves its state at the next call.
		refused := response.StatusCode == http.StatusPaymentRequired && c.charged == 0
		if refused {
			c.mu.Lock()
			c.depositsRefused = time.Now()
			c.mu.Unlock()
		}
		return response, refused, nil
	}
	_, limited := errors.AsType[*DepositLimitError](err)
	return nil, c.charged == 0 && (limited || errors.Is(err, errUnusable)), err
}

// depositRoom returns the most that a deposit may be for a call: what the budget leaves, or 0 if that does not pay for ten such
// calls, or after a refusal. A deposit for fewer calls costs the server more than transfers.
func (p *Payer) depositRoom(left, price uint64) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	room := min(left, p.Channels.MaxDeposit)
	if room/defaultDepositCalls < price || time.Since(p.depositsRefused) < depositPause {
		return 0
	}
	return room
}

// Deposited returns what the payment channels of the wallet have that is not charged, as they were stored last, in atomic units.
func (p *Payer) Deposited() (sum uint64, err error) {
	channels := p.paymentChannels()
	if channels == nil {
		return 0, nil
	}
	all, err := channels.Store.All()
	for _, channel := range all {
		if channel.Config.Payer == p.Address() { // other wallets may share the store
			sum += channel.unspent()
		}
	}
	return sum, err
}

// ErrNothingToRefund means that the server knows no deposit of the wallet: it was refunded before, or there never was one.
var ErrNothingToRefund = errors.New("the server has no deposit of this wallet")

// Refund asks a server for the part of the deposits that it did not charge, of all payment channels with it, and returns the amount in
// atomic units. The payment channels stay usable. url is the address of an operation that takes refunds; on a Parley server that is GET
// /agent/me. apiKey, if not "", is that of an account of this server that used the channel: a voucher that was claimed is
// public, so the server wants more proof that the wallet asks. The request goes to url only; redirects are not followed.
func (p *Payer) Refund(ctx context.Context, url, apiKey string) (sum uint64, err error) {
	channels := p.paymentChannels()
	if channels == nil {
		return 0, ErrNoPaymentChannel
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	if apiKey != "" {
		request.Header.Set("X-API-KEY", apiKey)
	}
	response, err := p.send(request, nil, "")
	if err != nil {
		return 0, err
	}
	discard(response)
	required, err := x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired))
	if err != nil {
		return 0, fmt.Errorf("refund: %s without payment requirements: %w", response.Status, err)
	}
	all, err := channels.refundable(required)
	if err != nil {
		return 0, err
	}
	var failed error // for one channel: others may be refunded
	for _, one := range all {
		refunded, err := p.refundOne(ctx, channels, one, request)
		sum, failed = sum+refunded, errors.Join(failed, err)
	}
	if sum == 0 && failed == nil {
		failed = ErrNothingToRefund
	}
	return sum, failed
}

// refundOne asks for the rest of one payment channel.
func (p *Payer) refundOne(
	ctx context.Context, channels *PaymentChannels, required *x402.PaymentRequired, request *http.Request,
) (uint64, error) {
	send := func(_ context.Context, payment string) (*http.Response, error) {
		return p.insist(request, nil, payment)
	}
	refunded, response, err := channels.Refund(ctx, required, 0, send)
	if response == nil {
		return refunded, err
	}
	defer discard(response)
	again, decodeErr := x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired))
	switch {
	case err != nil || response.StatusCode < http.StatusMultipleChoices:
		return refunded, err
	case decodeErr == nil && (again.Error == x402.ReasonBatchChannelNotFound || again.Error == x402.ReasonBatchRefundNoBalance):
		return 0, nil
	}
	return 0, &RefundError{response.StatusCode, x402.RetryAfter(response.Header.Get("Retry-After"), 0), peek(response)}
}

// RefundError means that the server refused a refund.
type RefundError struct {
	Status     int
	RetryAfter time.Duration // 0 if the server does not say it
	ParleyError
}

func (e *RefundError) Error() string { return fmt.Sprintf("refund: status %d %s", e.Status, e.Message) }
