package channel

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// TestDecide: what docs/payments.md, "What a payment needs", says of payment channels alone. Every case begins with a voucher for 3000 and
// a row that was charged with it, in the state of the case, for another request: the attempt has no fingerprint that the row has.
func TestDecide(t *testing.T) {
	t.Parallel()
	errReplaced, errSuspended := errors.New("the key was replaced"), errors.New("the account is suspended")
	errFormer := &payment.Error{Code: payment.CodeRefused, Message: "former terms"}
	type change func(v *voucher, row *store.Payment)
	sameRequest := func(_ *voucher, row *store.Payment) { row.Fingerprint = make([]byte, 32) }
	nextVoucher := func(v *voucher, _ *store.Payment) { v.of.Max, v.a.Nonce = 4000, "the next" }
	higher := func(v *voucher, _ *store.Payment) { v.of.Max = 4000 }
	otherChannel := func(v *voucher, _ *store.Payment) { v.of.ChannelID, v.a.Nonce = "0xother", "another" }
	otherDeposit := func(v *voucher, _ *store.Payment) { v.a.Nonce = "another" }
	formerTerms := func(v *voucher, _ *store.Payment) { v.a.Expired = errFormer }
	suspended := func(v *voucher, _ *store.Payment) { v.a.Caller.Suspended = errSuspended }
	replaced := func(v *voucher, _ *store.Payment) { v.a.Caller.RepeatOnly = errReplaced }
	for _, test := range []struct {
		name     string
		deposit  bool // the attempt has a deposit too
		state    string
		changes  []change
		unproven bool
		want     payment.Action // "": the rules of all schemes decide
		why      error
	}{
		{name: "delivered by this voucher", state: store.PaymentDelivered, changes: []change{sameRequest}},
		{name: "delivered by this voucher for another request", state: store.PaymentDelivered, want: payment.Correct},
		{name: "delivered by this voucher, no proof", state: store.PaymentDelivered, changes: []change{sameRequest}, unproven: true,
			want: payment.Correct},
		{name: "delivered, a later voucher without proof", state: store.PaymentDelivered, changes: []change{sameRequest, nextVoucher},
			unproven: true, want: payment.Correct},
		{name: "delivered, a later voucher", state: store.PaymentDelivered, changes: []change{sameRequest, nextVoucher}},
		{name: "delivered by another payment channel, another request", state: store.PaymentDelivered, changes: []change{otherChannel}},
		{name: "settling, another request", state: store.PaymentSettling},

		{name: "delivered by this deposit", deposit: true, state: store.PaymentDelivered, changes: []change{sameRequest}},
		{name: "delivered by this deposit, no proof", deposit: true, state: store.PaymentDelivered, changes: []change{sameRequest},
			unproven: true, want: payment.Correct},
		{name: "delivered by this deposit for another request", deposit: true, state: store.PaymentDelivered, want: payment.Correct},
		{name: "delivered by this voucher, with another deposit, for another request", deposit: true, state: store.PaymentDelivered,
			changes: []change{otherDeposit}, want: payment.Correct},
		{name: "deposited", deposit: true, state: store.PaymentDeposited, changes: []change{sameRequest}, want: payment.Charge},
		{name: "deposited, another request", deposit: true, state: store.PaymentDeposited, want: payment.Charge},
		{name: "deposited, for former terms", deposit: true, state: store.PaymentDeposited, changes: []change{formerTerms}, want: payment.Charge},
		{name: "deposited, for former terms, another voucher", deposit: true, state: store.PaymentDeposited,
			changes: []change{formerTerms, higher}, want: payment.Reject, why: errFormer},
		{name: "deposited, suspended", deposit: true, state: store.PaymentDeposited, changes: []change{suspended}, want: payment.Reject,
			why: errSuspended},
		{name: "deposited, the key was replaced", deposit: true, state: store.PaymentDeposited, changes: []change{replaced}, want: payment.Reject,
			why: errReplaced},
		{name: "deposited, another deposit", deposit: true, state: store.PaymentDeposited, changes: []change{otherDeposit}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			of := x402.BatchChecked{ChannelID: "0xchannel", Payer: "0xpayer", Max: 3000, Conclusive: true}
			blank := &payment.Attempt{Operation: &payment.Operation{ID: "rotateKey"}, Caller: &payment.Caller{Account: uuid.New()}}
			var v *voucher
			var pays payment.Payment
			blank.With(&x402.BatchPayment{}, checkedAs(of), func(a *payment.Attempt) payment.Payment {
				v = &voucher{a: a, of: of}
				pays = v
				if test.deposit {
					pays = &deposit{v}
				}
				return pays
			})
			row := &store.Payment{PaymentRecord: store.PaymentRecord{State: test.state, Payer: "0xpayer", Nonce: v.a.Nonce},
				Fingerprint: []byte("another request"), Now: time.Now()}
			v.Record(row)
			row.PaymentChannelID = new(of.ChannelID)
			for _, change := range test.changes {
				change(v, row)
			}
			if next, err := pays.Decide(row, !test.unproven); next != test.want || !errors.Is(err, test.why) {
				t.Errorf("needs %q, %v, want %q, %v", next, err, test.want, test.why)
			}
		})
	}
}

// TestLostState: a client without an account is known by its address, which others may share, so the address is offered exact first for a
// minute only. So is an account whose voucher was overtaken by another call; one whose vouchers go on not to fit has lost its state.
func TestLostState(t *testing.T) {
	t.Parallel()
	lost := (*voucher).preferExact
	misses := func(again bool) func(*voucher) {
		return func(v *voucher) {
			if got := v.isBehind(); got != again {
				t.Errorf("%s has lost its state: %t, want %t", v.a.Client, got, again)
			}
		}
	}
	otherFits := func(v *voucher) {
		v.of.ChannelID = "another"
		v.inStep()
	}
	for name, row := range map[string]struct {
		caller *payment.Caller
		misses []func(*voucher) // a minute apart
		want   time.Duration
	}{
		"an address":                  {nil, []func(*voucher){lost}, exactFor},
		"an account":                  {&payment.Caller{}, []func(*voucher){lost}, lostFor},
		"an account that is behind":   {&payment.Caller{}, []func(*voucher){misses(false)}, exactFor},
		"an account that stays there": {&payment.Caller{}, []func(*voucher){misses(false), misses(true)}, exactFor},
		"an account that uses others": {&payment.Caller{}, []func(*voucher){misses(false), otherFits, misses(true)}, exactFor},
		"an account that catches up":  {&payment.Caller{}, []func(*voucher){misses(false), (*voucher).inStep, misses(false)}, exactFor},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &Scheme{started: time.Now(), Config: Config{WithdrawDelay: 100 * time.Hour},
				lost: payment.NewRecent[string, struct{}](maxLost), behind: payment.NewRecent[string, bool](maxLost)}
			for i, miss := range row.misses {
				time.Sleep(time.Duration(min(i, 1)) * exactFor)
				miss(&voucher{Scheme: c, a: &payment.Attempt{Client: name, Caller: row.caller}})
			}
			time.Sleep(row.want - time.Second)
			if c.Rank(1, name) != payment.Fallback {
				t.Errorf("%s is not offered exact first a second before %s", name, row.want)
			}
			time.Sleep(time.Second)
			if c.Rank(1, name) != payment.Preferred {
				t.Errorf("%s is offered exact first after %s", name, row.want)
			}
		})
	}
}
