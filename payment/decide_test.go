package payment

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// TestDecide: the table of docs/payments.md, "What a payment needs". Every case begins with a payment by the scheme exact and a row
// that records it for the same request of the same account, in the state of the case; change makes the difference.
func TestDecide(t *testing.T) {
	t.Parallel()
	errReplaced, errSuspended := errors.New("the key was replaced"), errors.New("the account is suspended")
	type change func(a *Attempt, row *store.Payment)
	replaced := func(a *Attempt, _ *store.Payment) { a.caller.RepeatOnly = errReplaced }
	suspended := func(a *Attempt, _ *store.Payment) { a.caller.Suspended = errSuspended }
	otherRequest := func(_ *Attempt, row *store.Payment) { row.Fingerprint = []byte("another request") }
	otherAccount := func(_ *Attempt, row *store.Payment) { row.AgentID = new(uuid.New()) }
	otherPayment := func(_ *Attempt, row *store.Payment) { row.Nonce = "another" }
	otherOperation := func(_ *Attempt, row *store.Payment) { row.Operation = "another" }
	registration := func(a *Attempt, row *store.Payment) { a.caller, row.AgentID = nil, nil }
	unproven := func(a *Attempt, _ *store.Payment) { a.proven = false }
	leaseOver := func(_ *Attempt, row *store.Payment) { row.LeaseUntil = row.Now.Add(-time.Second) }
	identified := func(a *Attempt, row *store.Payment) {
		a.identifier = "sixteen characters"
		row.PaymentIdentifier = a.identifierHash()
	}
	otherIdentifier := func(a *Attempt, row *store.Payment) { identified(a, row); a.identifier = "another sixteen characters" }
	lacksIdentifier := func(a *Attempt, row *store.Payment) { identified(a, row); a.identifier = "" }
	smartWallet := func(a *Attempt, row *store.Payment) {
		a.Conclusive = false
		row.SignatureHash = []byte("of the first attempt")
	}
	refunded := func(_ *Attempt, row *store.Payment) { row.FailureReason = store.Refunded }
	voucher := func(a *Attempt, row *store.Payment) {
		a.scheme, a.requirements.Scheme, row.Scheme = vouchers{&ChannelScheme{}}, x402.SchemeBatch, x402.SchemeBatch
		a.checked = channelChecked(x402.BatchChecked{ChannelID: "0xchannel", Payer: row.Payer, Max: 3000, Conclusive: true})
		cumulative := int64(3000)
		row.Nonce, row.PaymentChannelID, row.CumulativeAmount = a.Nonce, new("0xchannel"), &cumulative
	}
	ofChannel := func(_ *Attempt, row *store.Payment) { row.Scheme = x402.SchemeBatch }
	ofNoChannel := func(_ *Attempt, row *store.Payment) { row.Scheme = x402.SchemeExact }
	errFormer := &Error{Code: CodeRefused, Message: "former terms"}
	formerTerms := func(a *Attempt, _ *store.Payment) { a.expired = errFormer }
	higher := func(a *Attempt, _ *store.Payment) { a.channel.Max = 4000 }
	nextVoucher := func(a *Attempt, row *store.Payment) {
		voucher(a, row)
		a.channel.Max, a.Nonce = 4000, "the next"
	}
	for _, test := range []struct {
		name    string
		state   string // of the row; "" without one
		changes []change
		want    action
		why     error  // of a rejection
		refused string // why is a 402 with this reason
	}{
		{name: "new", want: settleFirst},
		{name: "new, by voucher", changes: []change{voucher}, want: settleFirst},
		{name: "new, the key was replaced", changes: []change{replaced}, want: reject, why: errReplaced},
		{name: "new, suspended", changes: []change{suspended}, want: reject, why: errSuspended},
		{name: "new, replaced and suspended", changes: []change{suspended, replaced}, want: reject, why: errReplaced},

		{name: "deposited", state: store.PaymentDeposited, changes: []change{voucher}, want: useVoucher},
		{name: "deposited, another request", state: store.PaymentDeposited, changes: []change{voucher, otherRequest}, want: useVoucher},
		{name: "deposited, for former terms", state: store.PaymentDeposited, changes: []change{voucher, formerTerms}, want: useVoucher},
		{name: "deposited, for former terms, another voucher", state: store.PaymentDeposited, changes: []change{voucher, formerTerms, higher}, want: reject, why: errFormer},
		{name: "deposited, an authorization with its nonce", state: store.PaymentDeposited, changes: []change{ofChannel}, want: reject, why: errReused},
		{name: "delivered, a deposit with its nonce", state: store.PaymentDelivered, changes: []change{voucher, ofNoChannel}, want: reject, why: errReused},
		{name: "deposited, suspended", state: store.PaymentDeposited, changes: []change{voucher, suspended}, want: reject, why: errSuspended},
		{name: "deposited, the key was replaced", state: store.PaymentDeposited, changes: []change{voucher, replaced}, want: reject, why: errReplaced},

		{name: "delivered", state: store.PaymentDelivered, want: repeat},
		{name: "delivered, suspended", state: store.PaymentDelivered, changes: []change{suspended}, want: repeat},
		{name: "delivered, the key was replaced", state: store.PaymentDelivered, changes: []change{replaced}, want: repeat},
		{name: "delivered, no proof", state: store.PaymentDelivered, changes: []change{unproven}, want: reject, why: errProofRequired},
		{name: "delivered, another request", state: store.PaymentDelivered, changes: []change{otherRequest}, want: reject, why: errReused},
		{name: "delivered, with its identifier", state: store.PaymentDelivered, changes: []change{identified}, want: repeat},
		{name: "delivered, another identifier", state: store.PaymentDelivered, changes: []change{otherIdentifier}, want: reject, why: errReused},
		{name: "delivered, without its identifier", state: store.PaymentDelivered, changes: []change{lacksIdentifier}, want: reject, why: errReused},
		{name: "delivered, found by its identifier, signed again", state: store.PaymentDelivered, changes: []change{identified, otherPayment}, want: repeat},
		{name: "delivered, a signature that proves nothing", state: store.PaymentDelivered, changes: []change{smartWallet}, want: reject, why: errReused},
		{name: "delivered by this voucher", state: store.PaymentDelivered, changes: []change{voucher}, want: repeat},
		{name: "delivered by this voucher for another request", state: store.PaymentDelivered, changes: []change{voucher, otherRequest}, want: correct},
		{name: "delivered by this voucher, no proof", state: store.PaymentDelivered, changes: []change{voucher, unproven}, want: reject, why: errProofRequired},
		{name: "delivered, a later voucher without proof", state: store.PaymentDelivered, changes: []change{nextVoucher, unproven}, want: correct},

		{name: "failed", state: store.PaymentFailed, want: reject, refused: "the reason"},
		{name: "failed, the key was replaced", state: store.PaymentFailed, changes: []change{replaced}, want: reject, why: errReplaced},
		{name: "failed, released its identifier", state: store.PaymentFailed,
			changes: []change{func(a *Attempt, _ *store.Payment) { a.identifier = "sixteen characters" }}, want: reject, refused: "the reason"},

		{name: "undeliverable", state: store.PaymentUndeliverable, want: redeem},
		{name: "undeliverable, a corrected request", state: store.PaymentUndeliverable, changes: []change{otherRequest}, want: redeem},
		{name: "undeliverable, another operation", state: store.PaymentUndeliverable, changes: []change{otherOperation}, want: reject, why: errReused},
		{name: "undeliverable, another account", state: store.PaymentUndeliverable, changes: []change{otherAccount}, want: reject, why: errReused},
		{name: "undeliverable, suspended", state: store.PaymentUndeliverable, changes: []change{suspended}, want: reject, why: errSuspended},
		{name: "undeliverable, refunded", state: store.PaymentUndeliverable, changes: []change{refunded}, want: reject, refused: store.Refunded},
		{name: "undeliverable registration", state: store.PaymentUndeliverable, changes: []change{registration}, want: redeem},
		{name: "undeliverable registration, no proof", state: store.PaymentUndeliverable, changes: []change{registration, unproven}, want: reject, why: errProofRequired},

		{name: "unknown", state: store.PaymentUnknown, want: resume},
		{name: "unknown, no proof", state: store.PaymentUnknown, changes: []change{unproven}, want: resume},
		{name: "unknown, suspended", state: store.PaymentUnknown, changes: []change{suspended}, want: resume},
		{name: "unknown, the key was replaced", state: store.PaymentUnknown, changes: []change{replaced}, want: reject, why: errReplaced},
		{name: "unknown, another request", state: store.PaymentUnknown, changes: []change{otherRequest}, want: reject, why: errReused},
		{name: "settling", state: store.PaymentSettling, want: wait},
		{name: "settling, the lease is over", state: store.PaymentSettling, changes: []change{leaseOver}, want: resume},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := &Attempt{
				operation: &Operation{ID: "rotateKey"}, scheme: &exact{}, requirements: x402.PaymentRequirements{Scheme: x402.SchemeExact}, caller: &Caller{Account: uuid.New()}, fingerprint: [32]byte{1}, proven: true,
				payload: payload{exact: &x402.PaymentPayload{}}, checked: checked{Checked: x402.Checked{Payer: "0xpayer", Nonce: "0xnonce", Conclusive: true}},
			}
			row := a.row()
			row.State, row.FailureReason, row.Now = test.state, "the reason", time.Now()
			row.Fingerprint, row.LeaseUntil = bytes.Clone(row.Fingerprint), row.Now.Add(Lease)
			for _, change := range test.changes {
				change(a, row)
			}
			proven := a.proven
			if test.state == "" {
				row = nil
			}
			got, err := new(Engine).decide(a, row, proven)
			if got != test.want {
				t.Errorf("needs %q, want %q", got, test.want)
			}
			if refused, ok := errors.AsType[*Error](err); test.refused != "" && (!ok || refused.Code != CodeRefused || refused.Required.Error != test.refused) {
				t.Errorf("is rejected with %v, want a 402 for %q", err, test.refused)
			}
			if test.refused == "" && err != test.why { //nolint:errorlint // this very error
				t.Errorf("is rejected with %v, want %v", err, test.why)
			}
		})
	}
}
