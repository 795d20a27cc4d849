package payment

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// settled is a mover whose facilitator says the same each time.
type settled struct {
	Mover
	says     *x402.SettleResponse
	err      error
	doubtful bool
}

func (s settled) Settle(context.Context) (*x402.SettleResponse, error) { return s.says, s.err }
func (s settled) Doubts(context.Context, *x402.SettleResponse) bool    { return s.doubtful }
func (settled) Expired() string                                        { return "expired" }
func (settled) Judge(used x402.AuthorizationState, _ *store.Payment) string {
	if used.To == "another" {
		return "another transfer"
	}
	return ""
}

// usedChain is a chain with one authorization.
type usedChain struct {
	Chain
	state x402.AuthorizationState
	err   error
}

func (c usedChain) Authorization(context.Context, string, string, string, time.Time) (x402.AuthorizationState, error) {
	return c.state, c.err
}

// expiry is when the payments of TestMove expire.
var expiry = time.Now()

// TestMove: what becomes of a settlement, by what the facilitator says and what stands on the chain. The chain is looked at before a
// further attempt, after a rejection, and where the facilitator's word is not enough. A payment counts as refused only if nothing can move
// its money any more.
func TestMove(t *testing.T) {
	t.Parallel()
	open := usedChain{state: x402.AuthorizationState{ChainTime: expiry}}
	ours := usedChain{state: x402.AuthorizationState{Used: true, To: "ours", Transaction: "0xchain"}}
	another := usedChain{state: x402.AuthorizationState{Used: true, To: "another"}}
	cancelled := usedChain{state: x402.AuthorizationState{Cancelled: true}}
	late := usedChain{state: x402.AuthorizationState{ChainTime: expiry.Add(time.Second)}}
	down := usedChain{err: errors.New("the endpoint is down")}
	const refusal = "invalid_exact_evm_insufficient_balance"
	success := settled{says: &x402.SettleResponse{Success: true, Transaction: "0xfacilitator"}}
	doubtful := settled{says: success.says, doubtful: true}
	rejected := func(reason string) settled { return settled{says: &x402.SettleResponse{ErrorReason: reason}} }
	notSent := settled{err: &x402.UnknownOutcome{NotSent: true, Err: errors.New("refused connection")}}
	noVerdict := settled{err: &x402.UnknownOutcome{Err: errors.New("timeout")}}
	for _, test := range []moveTest{
		{name: "settles", attempts: 1, facilitator: success, chain: down, transaction: "0xfacilitator"},
		{name: "is rejected, and the endpoint is down", attempts: 1, facilitator: rejected(refusal), chain: down, sent: true},
		{name: "is rejected for a reason of the facilitator's own", attempts: 1, facilitator: rejected("settle_exact_node_failure"), chain: open,
			sent: true},
		{name: "is rejected with a transaction", attempts: 1, facilitator: settled{says: &x402.SettleResponse{ErrorReason: refusal,
			Transaction: "0xsent"}}, chain: open, sent: true},
		{name: "is doubtful, and on the chain", attempts: 1, facilitator: doubtful, chain: ours, transaction: "0xchain"},
		{name: "is doubtful, and never on the chain", attempts: 1, facilitator: doubtful, chain: open, sent: true},
		{name: "is doubtful, and was cancelled", attempts: 1, facilitator: doubtful, chain: cancelled,
			refused: "the authorization was cancelled"},
		{name: "is rejected without a verdict", attempts: 1, facilitator: rejected(x402.ReasonSettlementPending), chain: open, sent: true},
		{name: "is not sent", attempts: 1, facilitator: notSent, chain: open},
		{name: "gets no response", attempts: 1, facilitator: noVerdict, chain: open, sent: true},
		{name: "is rejected, but stands on the chain", attempts: 1, facilitator: rejected(refusal), chain: ours, transaction: "0xchain"},
		{name: "is rejected, and is not on the chain", attempts: 1, facilitator: rejected(refusal), chain: open, refused: refusal},
		{name: "is rejected, and used for another transfer", attempts: 1, facilitator: rejected(refusal), chain: another,
			refused: "another transfer"},
		{name: "is used, and our endpoint lags behind", attempts: 1, facilitator: rejected(x402.ReasonNonceAlreadyUsed), chain: open, sent: true},
		{name: "was settled by the first attempt", attempts: 2, facilitator: rejected(refusal), chain: ours, transaction: "0xchain"},
		{name: "was cancelled", attempts: 2, facilitator: success, chain: cancelled, refused: "the authorization was cancelled"},
		{name: "has expired", attempts: 2, facilitator: success, chain: late, refused: "expired"},
		{name: "settles at the second attempt", attempts: 2, facilitator: success, chain: open, transaction: "0xfacilitator"},
		{name: "is rejected at the second attempt", attempts: 2, facilitator: rejected(refusal), chain: open, sent: true},
		{name: "waits for the endpoint", attempts: 2, facilitator: success, chain: down, sent: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test.run)
		})
	}
}

// moveTest is a row of TestMove.
type moveTest struct {
	name        string
	attempts    int
	facilitator settled
	chain       usedChain
	transaction string // "" if it is not settled
	refused     string // the reason; "" if the outcome is unclear
	sent        bool   // an unclear one may have moved the money
}

func (test moveTest) run(t *testing.T) {
	e := &Engine{Chain: test.chain}
	e.metrics = newMetrics(nil, nil, nil)
	moved, err := e.move(t.Context(), &Attempt{}, test.facilitator,
		&store.Payment{PaymentRecord: store.PaymentRecord{Attempts: test.attempts, ValidBefore: expiry}})
	no, refused := errors.AsType[*RefusedSettlement](err)
	unclear, isUnclear := errors.AsType[*UnclearSettlement](err)
	switch {
	case test.transaction != "":
		if err != nil || !moved.Success || moved.Transaction != test.transaction {
			t.Errorf("is %+v, %v, want settled by %s", moved, err, test.transaction)
		}
	case test.refused != "":
		if !refused || no.Reason != test.refused {
			t.Errorf("is %+v, %v, want refused because %q", moved, err, test.refused)
		}
	case !isUnclear || unclear.Sent != test.sent:
		t.Errorf("is %+v, %v, want unclear, sent %v", moved, err, test.sent)
	}
}

// silentChain never responds.
type silentChain struct{ Chain }

func (silentChain) Authorization(ctx context.Context, _, _, _ string, _ time.Time) (x402.AuthorizationState, error) {
	<-ctx.Done()
	return x402.AuthorizationState{}, ctx.Err()
}

// TestSilentChain: a caller does not wait long for an endpoint that does not respond, and its outcome stays unknown.
func TestSilentChain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, began := &Engine{Chain: silentChain{}}, time.Now()
		moved, err := e.move(t.Context(), &Attempt{}, settled{}, &store.Payment{PaymentRecord: store.PaymentRecord{Attempts: 2}})
		if _, unclear := errors.AsType[*UnclearSettlement](err); !unclear || time.Since(began) != ChainTimeout {
			t.Errorf("after %s it is %+v, %v, want unclear after %s", time.Since(began), moved, err, ChainTimeout)
		}
	})
}

// TestJudge: an authorization that was used is the payment only if it paid the payee the price, not long before it came here.
func TestJudge(t *testing.T) {
	t.Parallel()
	row := &store.Payment{PaymentRecord: store.PaymentRecord{CreatedAt: time.Now()}}
	row.PayTo, row.Amount = "0xpayee", 5000
	for _, test := range []struct {
		name string
		used x402.AuthorizationState
		ours bool
	}{
		{"the payment", x402.AuthorizationState{To: "0xPayee", Amount: 5000, At: row.CreatedAt.Add(time.Second)}, true},
		{"at a time that is not known", x402.AuthorizationState{To: "0xPayee", Amount: 5000}, true},
		{"by a clock that is behind", x402.AuthorizationState{To: "0xPayee", Amount: 5000, At: row.CreatedAt.Add(-usedBefore)}, true},
		{"before it came here", x402.AuthorizationState{To: "0xPayee", Amount: 5000, At: row.CreatedAt.Add(-usedBefore - 1)}, false},
		{"another amount", x402.AuthorizationState{To: "0xPayee", Amount: 4999}, false},
		{"another payee", x402.AuthorizationState{To: "0xother", Amount: 5000}, false},
	} {
		if why := (*transfer)(nil).Judge(test.used, row); (why == "") != test.ours {
			t.Errorf("%s: %q, want ours %v", test.name, why, test.ours)
		}
	}
}
