package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// channelPrice is what a call costs, and channelDeposit what the server suggests to deposit: ten calls.
const (
	channelPrice   = 1000
	channelDeposit = 10_000
)

// fault changes how the server handles one paid request. Each is called with the response writer and returns true if it
// has responded.
type fault struct {
	before, afterDeposit, after func(w http.ResponseWriter) bool
	lie                         func(state *x402.ChannelState, newest *x402.VoucherState)
}

// channelShop is a resource server that takes payment channels, on a dev network.
type channelShop struct {
	*httptest.Server
	t           *testing.T
	ledger      *devnet.Ledger
	facilitator *x402.Facilitator
	checker     x402.BatchChecker
	offers      []x402.PaymentRequirements

	mu       sync.Mutex
	charged  map[string]uint64
	newest   map[string]x402.Voucher
	answered map[string]string // PAYMENT-RESPONSE by channel and voucher
	faults   []fault
	seen     []string // the types of all payments
	names    []string // their payment identifiers
	deposits map[string]int
	highest  uint64 // of all vouchers
}

func openChannelShop(t *testing.T) *channelShop {
	t.Helper()
	ledger, err := devnet.OpenLedger("")
	testkit.NoError(t, err)
	network := httptest.NewServer(devnet.NewFacilitator(ledger))
	t.Cleanup(network.Close)
	sepolia, _ := x402.LookupNetwork(devnet.NetworkID)
	checker, err := x402.NewBatchChecker(sepolia)
	testkit.NoError(t, err)
	s := &channelShop{
		t: t, ledger: ledger, facilitator: &x402.Facilitator{BaseURL: network.URL, HTTPClient: network.Client()}, checker: checker,
		offers: []x402.PaymentRequirements{
			sepolia.Requirements(channelPrice, devnet.Payee, 60),
			sepolia.BatchRequirements(channelPrice, devnet.Payee, 60, x402.ChannelTerms{
				ReceiverAuthorizer: devnet.Accounts()[2].Address, WithdrawDelay: 86_400, MinDeposit: channelDeposit,
			}),
		},
		charged: map[string]uint64{}, newest: map[string]x402.Voucher{}, answered: map[string]string{}, deposits: map[string]int{},
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve)) // the handler reads its URL
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *channelShop) chain() *x402.Chain {
	return &x402.Chain{URL: s.facilitator.BaseURL + "/rpc", HTTPClient: s.facilitator.HTTPClient}
}

// demand responds with a 402.
func (s *channelShop) demand(w http.ResponseWriter, problem string, offers []x402.PaymentRequirements) {
	demand(s.t, w, &x402.PaymentRequired{Error: problem, Accepts: offers})
}

func (s *channelShop) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	payment := r.Header.Get(x402.HeaderPaymentSignature)
	if payment == "" {
		s.demand(w, "payment required", s.offers)
		return
	}
	decoded, err := x402.DecodePayment(payment)
	exact, _ := decoded.(*x402.PaymentPayload)
	batch, _ := decoded.(*x402.BatchPayment)
	if err != nil {
		s.t.Errorf("the payment does not decode: %v", err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if exact != nil {
		s.seen, s.names = append(s.seen, exact.Accepted.Scheme), append(s.names, string(exact.Extensions["payment-identifier"]))
		if settled, err := s.facilitator.Settle(r.Context(), exact, s.offers[0]); err != nil || !settled.Success {
			s.demand(w, fmt.Sprintf("exact: %+v %v", settled, err), s.offers)
		}
		return
	}
	offer, matched := x402.MatchBatch(s.offers, batch)
	checked, err := s.checker.Check(offer, batch, s.ledger.Now())
	if !matched || err != nil {
		s.t.Errorf("the payment matches %t and checks as %v", matched, err)
		s.demand(w, "bad", s.offers)
		return
	}
	s.seen, s.names = append(s.seen, checked.Type), append(s.names, string(batch.Extensions["payment-identifier"]))
	s.highest = max(s.highest, checked.Max)
	if checked.Type == x402.BatchDeposit {
		s.deposits[checked.DepositNonce]++
	}
	var f fault
	if len(s.faults) > 0 {
		f, s.faults = s.faults[0], s.faults[1:]
	}
	if f.before == nil || !f.before(w) {
		s.charge(w, batch, offer, checked, f)
	}
}

// charge settles the deposit, charges the voucher and responds.
func (s *channelShop) charge(
	w http.ResponseWriter, batch *x402.BatchPayment, offer x402.PaymentRequirements, checked x402.BatchChecked, f fault,
) {
	id, name := checked.ChannelID, fmt.Sprint(checked.ChannelID, checked.Max)
	channel := s.ledger.Channel(id)
	if repeated, ok := s.answered[name]; ok && checked.Type == x402.BatchVoucher {
		w.Header().Set(x402.HeaderPaymentResponse, repeated)
		return
	}
	if err := checked.Fits(x402.ChannelSums{Charged: s.charged[id], Balance: channel.Balance, TotalClaimed: channel.TotalClaimed},
		channelPrice); err != nil || f.lie != nil {
		s.correct(w, id, channel, err, f.lie)
		return
	}
	response := x402.SettleResponse{Success: true, Network: offer.Network, Payer: checked.Payer}
	charge := uint64(channelPrice)
	switch checked.Type {
	case x402.BatchRefund:
		s.refund(w, batch, offer, checked)
		return
	case x402.BatchDeposit:
		settled, err := s.facilitator.SettleDeposit(context.Background(), batch, offer)
		if err != nil || !settled.Success {
			s.demand(w, fmt.Sprintf("deposit: %+v %v", settled, err), s.offers)
			return
		}
		response.Transaction, response.Amount = settled.Transaction, settled.Amount
		if f.afterDeposit != nil {
			charge = 0
		}
	}
	s.charged[id] += charge
	if charge > 0 {
		s.newest[id] = batch.Payload.Voucher
	}
	state := s.ledger.Channel(id).State(id, s.charged[id])
	response.Extra = x402.BatchExtra{ChargedAmount: fmt.Sprint(charge), ChannelState: &state}.Encode()
	header := s.receipt(&response)
	if charge > 0 {
		s.answered[name] = header
	}
	if f.after != nil && f.after(w) {
		return
	}
	w.Header().Set(x402.HeaderPaymentResponse, header)
	if f.afterDeposit != nil {
		f.afterDeposit(w)
	}
}

// correct responds with the state of the channel and its newest voucher, or with a lie about them.
func (s *channelShop) correct(
	w http.ResponseWriter, id string, channel x402.Channel, problem error, lie func(*x402.ChannelState, *x402.VoucherState),
) {
	reason := x402.ReasonBatchCumulativeMismatch
	if bad, ok := errors.AsType[*x402.Invalid](problem); ok {
		reason = bad.Reason
	}
	state := channel.State(id, s.charged[id])
	newest := &x402.VoucherState{SignedMaxClaimable: s.newest[id].MaxClaimableAmount, Signature: s.newest[id].Signature}
	if lie != nil {
		lie(&state, newest)
	}
	if newest.Signature == "" {
		newest = nil
	}
	s.demand(w, reason, x402.Corrective(s.offers, state, newest))
}

// refund completes a refund with the keys of the server.
func (s *channelShop) refund(w http.ResponseWriter, batch *x402.BatchPayment, offer x402.PaymentRequirements, checked x402.BatchChecked) {
	var err error
	key, domain, channel, amount := accountKey(s.t, 2), x402.NewBatchDomain(84532), s.ledger.Channel(checked.ChannelID), checked.Refund
	if amount == 0 {
		amount = channel.Balance - s.charged[checked.ChannelID]
	}
	command := x402.NewRefundCommand(batch.Payload.ChannelConfig, batch.Payload.Voucher, amount, channel)
	command.RefundAuthorizerSignature, err = domain.SignRefund(key, checked.ChannelID, channel.RefundNonce, amount)
	if err == nil && len(command.Claims) > 0 {
		command.ClaimAuthorizerSignature, err = domain.SignClaims(key, command.Claims)
	}
	if err != nil {
		s.t.Error(err)
	}
	settled, err := s.facilitator.SettleRefund(context.Background(), command, offer)
	if err != nil || !settled.Success {
		s.demand(w, fmt.Sprintf("refund: %+v %v", settled, err), s.offers)
		return
	}
	w.Header().Set(x402.HeaderPaymentResponse, s.receipt(settled))
}

func (s *channelShop) receipt(settled *x402.SettleResponse) string {
	header, err := x402.EncodeSettleResponse(settled)
	if err != nil {
		s.t.Error(err)
	}
	return header
}
