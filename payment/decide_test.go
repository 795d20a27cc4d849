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

// chargedOnly is a payment that moves no money.
type chargedOnly struct{ Payment }

// TestDecide: docs/payments.md, "What a payment needs". Every case begins with a payment by the scheme exact and a row
// that records it for the same request of the same account, in the state of the case; change makes the difference.
func TestDecide(t *testing.T) {
	t.Parallel()
	errReplaced, errSuspended := errors.New("the key was replaced"), errors.New("the account is suspended")
	type change func(a *Attempt, row *store.Payment)
	replaced := func(a *Attempt, _ *store.Payment) { a.Caller.RepeatOnly = errReplaced }
	suspended := func(a *Attempt, _ *store.Payment) { a.Caller.Suspended = errSuspended }
	otherRequest := func(_ *Attempt, row *store.Payment) { row.Fingerprint = []byte("another request") }
	otherAccount := func(_ *Attempt, row *store.Payment) { row.AgentID = new(uuid.New()) }
	otherPayment := func(_ *Attempt, row *store.Payment) { row.Nonce = "another" }
	otherOperation := func(_ *Attempt, row *store.Payment) { row.Operation = "another" }
	registration := func(a *Attempt, row *store.Payment) { a.Caller, row.AgentID = nil, nil }
	unproven := func(a *Attempt, _ *store.Payment) { a.proven = false }
	leaseOver := func(_ *Attempt, row *store.Payment) { row.LeaseUntil = row.Now.Add(-time.Second) }
	onlyHere := func(_ *Attempt, row *store.Payment) { // the database's clock is ten minutes behind
		row.Now, row.LeaseUntil = row.Now.Add(-10*time.Minute), row.LeaseUntil.Add(-10*time.Minute)
	}
	identified := func(a *Attempt, row *store.Payment) {
		a.identifier = nameOf("sixteen characters")
		row.PaymentIdentifier = a.identifier
	}
	otherIdentifier := func(a *Attempt, row *store.Payment) {
		identified(a, row)
		a.identifier = nameOf("another sixteen characters")
	}
	lacksIdentifier := func(a *Attempt, row *store.Payment) { identified(a, row); a.identifier = nil }
	keyed := func(a *Attempt, row *store.Payment) { a.key, row.IdempotencyKey = nameOf("key"), nameOf("key") }
	otherKey := func(a *Attempt, row *store.Payment) { a.key, row.IdempotencyKey = nameOf("another"), nameOf("key") }
	smartWallet := func(a *Attempt, row *store.Payment) {
		a.Conclusive = false
		row.SignatureHash = []byte("of the first attempt")
	}
	refunded := func(_ *Attempt, row *store.Payment) { row.FailureReason = store.Refunded }
	ofChannel := func(_ *Attempt, row *store.Payment) { row.Scheme = x402.SchemeBatch }
	errFormer := &Error{Code: CodeRefused, Message: "former terms"}
	formerTerms := func(a *Attempt, _ *store.Payment) { a.Expired = errFormer }
	charged := func(a *Attempt, _ *store.Payment) { a.payment = chargedOnly{a.payment} }
	for _, test := range []struct {
		name    string
		state   string // of the row; "" without one
		changes []change
		want    Action
		why     error  // of a rejection
		refused string // why is a 402 with this reason
		unknown bool   // why is that the outcome is not known
	}{
		{name: "new", want: settleFirst},
		{name: "new, moves no money", changes: []change{charged}, want: Charge},
		{name: "new, for former terms", changes: []change{formerTerms}, want: Reject, why: errFormer},
		{name: "new, for former terms, the key was replaced", changes: []change{formerTerms, replaced}, want: Reject, why: errReplaced},
		{name: "new, the key was replaced", changes: []change{replaced}, want: Reject, why: errReplaced},
		{name: "new, suspended", changes: []change{suspended}, want: Reject, why: errSuspended},
		{name: "new, replaced and suspended", changes: []change{suspended, replaced}, want: Reject, why: errReplaced},

		{name: "deposited, an authorization with its nonce", state: store.PaymentDeposited, changes: []change{ofChannel}, want: Reject,
			why: errReused},

		{name: "delivered", state: store.PaymentDelivered, want: repeat},
		{name: "delivered, suspended", state: store.PaymentDelivered, changes: []change{suspended}, want: repeat},
		{name: "delivered, the key was replaced", state: store.PaymentDelivered, changes: []change{replaced}, want: repeat},
		{name: "delivered, no proof", state: store.PaymentDelivered, changes: []change{unproven}, want: Reject, why: errProofRequired},
		{name: "delivered, another request, no proof", state: store.PaymentDelivered, changes: []change{otherRequest, unproven}, want: Reject,
			why: errProofRequired},
		{name: "delivered, without its identifier, no proof", state: store.PaymentDelivered, changes: []change{lacksIdentifier, unproven},
			want: Reject, why: errProofRequired},
		{name: "delivered, another request", state: store.PaymentDelivered, changes: []change{otherRequest}, want: Reject, why: errReused},
		{name: "delivered, with its identifier", state: store.PaymentDelivered, changes: []change{identified}, want: repeat},
		{name: "delivered, another identifier", state: store.PaymentDelivered, changes: []change{otherIdentifier}, want: Reject, why: errReused},
		{name: "delivered, without its identifier", state: store.PaymentDelivered, changes: []change{lacksIdentifier}, want: Reject,
			why: errReused},
		{name: "delivered, found by its identifier, signed again", state: store.PaymentDelivered, changes: []change{identified, otherPayment},
			want: repeat},
		{name: "delivered, found by its key, signed again", state: store.PaymentDelivered, changes: []change{keyed, otherPayment}, want: repeat},
		{name: "delivered, found by its key, another request", state: store.PaymentDelivered,
			changes: []change{keyed, otherPayment, otherRequest}, want: Reject, why: errKeyReused},
		{name: "delivered, found by its key, no proof", state: store.PaymentDelivered, changes: []change{keyed, otherPayment, unproven},
			want: Reject, why: errProofRequired},
		{name: "delivered, another key", state: store.PaymentDelivered, changes: []change{otherKey}, want: repeat},
		{name: "undeliverable, another key", state: store.PaymentUndeliverable, changes: []change{otherKey, otherRequest}, want: redeem},
		{name: "delivered, a signature that proves nothing", state: store.PaymentDelivered, changes: []change{smartWallet}, want: Reject,
			why: errReused},

		{name: "failed", state: store.PaymentFailed, want: Reject, refused: "the reason"},
		{name: "failed, the key was replaced", state: store.PaymentFailed, changes: []change{replaced}, want: Reject, why: errReplaced},
		{name: "failed, another request, no proof", state: store.PaymentFailed, changes: []change{otherRequest, unproven}, want: Reject,
			refused: "the reason"},
		{name: "failed, released its identifier", state: store.PaymentFailed,
			changes: []change{func(a *Attempt, _ *store.Payment) { a.identifier = nameOf("sixteen characters") }}, want: Reject,
			refused: "the reason"},

		{name: "undeliverable", state: store.PaymentUndeliverable, want: redeem},
		{name: "undeliverable, a corrected request", state: store.PaymentUndeliverable, changes: []change{otherRequest}, want: redeem},
		{name: "undeliverable, another operation", state: store.PaymentUndeliverable, changes: []change{otherOperation}, want: Reject,
			why: errReused},
		{name: "undeliverable, another account", state: store.PaymentUndeliverable, changes: []change{otherAccount}, want: Reject,
			why: errReused},
		{name: "undeliverable, suspended", state: store.PaymentUndeliverable, changes: []change{suspended}, want: Reject, why: errSuspended},
		{name: "undeliverable, refunded", state: store.PaymentUndeliverable, changes: []change{refunded}, want: Reject, refused: store.Refunded},
		{name: "undeliverable registration", state: store.PaymentUndeliverable, changes: []change{registration}, want: redeem},
		{name: "undeliverable, another account, no proof", state: store.PaymentUndeliverable, changes: []change{otherAccount, unproven},
			want: Reject, why: errReused},
		{name: "undeliverable registration, no proof", state: store.PaymentUndeliverable, changes: []change{registration, unproven}, want: Reject,
			why: errProofRequired},

		{name: "unknown", state: store.PaymentUnknown, want: resume},
		{name: "unknown, no proof", state: store.PaymentUnknown, changes: []change{unproven}, want: Reject, unknown: true},
		{name: "unknown, another request, no proof", state: store.PaymentUnknown, changes: []change{otherRequest, unproven}, want: Reject,
			unknown: true},
		{name: "unknown, suspended", state: store.PaymentUnknown, changes: []change{suspended}, want: resume},
		{name: "unknown, the key was replaced", state: store.PaymentUnknown, changes: []change{replaced}, want: Reject, why: errReplaced},
		{name: "unknown, another request", state: store.PaymentUnknown, changes: []change{otherRequest}, want: Reject, why: errReused},
		{name: "settling", state: store.PaymentSettling, want: wait},
		{name: "settling, another request, no proof", state: store.PaymentSettling, changes: []change{otherRequest, unproven}, want: wait},
		{name: "settling, the lease is over", state: store.PaymentSettling, changes: []change{leaseOver}, want: resume},
		{name: "settling, the lease is over by this machine's clock only", state: store.PaymentSettling, changes: []change{onlyHere}, want: wait},
		{name: "settling, the lease is over, another request, no proof", state: store.PaymentSettling,
			changes: []change{leaseOver, otherRequest, unproven}, want: Reject, unknown: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := &Attempt{
				Operation: &Operation{ID: "rotateKey"}, Requirements: x402.PaymentRequirements{Scheme: x402.SchemeExact},
				Caller:  &Caller{Account: uuid.New()},
				payload: &x402.PaymentPayload{}, Checked: Checked{Checked: x402.Checked{Payer: "0xpayer", Nonce: "0xnonce", Conclusive: true}},
				fingerprint: [32]byte{1}, proven: true,
			}
			a.payment = &transfer{attempt: a}
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
			refused, ok := errors.AsType[*Error](err)
			if test.refused != "" && (!ok || refused.Code != CodeRefused || refused.Required.Error != test.refused) {
				t.Errorf("is rejected with %v, want a 402 for %q", err, test.refused)
			}
			if test.unknown && (!ok || refused.Code != CodeUnknown) {
				t.Errorf("is rejected with %v, want a 503 payment_unknown", err)
			}
			if test.refused == "" && !test.unknown && err != test.why { //nolint:errorlint // this very error
				t.Errorf("is rejected with %v, want %v", err, test.why)
			}
		})
	}
}
