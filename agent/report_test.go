package agent

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/lockfile"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestApprovals: a report has what was paid above the limits, and what waits for a person.
func TestApprovals(t *testing.T) {
	t.Parallel()
	l := openLedger(t, t.TempDir())
	ask := func(request string) string {
		asked, err := l.Ask(t.Context(), Approval{Operation: "createChannel", Peer: "bob", Request: request, Price: 500_000})
		testkit.NoError(t, err)
		return asked.ID
	}
	paid, waits := ask("1"), ask("2")
	_, err := l.Approve(t.Context(), paid)
	testkit.NoError(t, err)
	of := intent{ID: "1", Operation: "createChannel", Peer: "bob", Request: "1", Approval: paid}
	testkit.NoError(t, l.Reserve(withIntent(t.Context(), of), client.Reservation{ID: "1", Price: 500_000, Amount: 500_000}))
	got, err := l.Approvals(t.Context(), time.Time{}.AddDate(1970, 0, 0))
	testkit.NoError(t, err)
	for i := range got {
		got[i].At = time.Time{}
	}
	want := []ApprovedPayment{{ID: paid, Operation: "createChannel", Peer: "bob", Amount: 500_000, Paid: true},
		{ID: waits, Operation: "createChannel", Peer: "bob", Amount: 500_000}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("approvals (-want +got):\n%s", diff)
	}
}

// TestApprovedCosts: an approved payment costs what the call was charged, not what its voucher added; one that was refused cost nothing.
func TestApprovedCosts(t *testing.T) {
	t.Parallel()
	l := openLedger(t, t.TempDir())
	for id, charged := range map[string]uint64{"alice": 0, "bob": 10_000} {
		of := intent{ID: id, Operation: "requestAccount", Peer: id, Request: id}
		asked, err := l.Ask(t.Context(), Approval{Operation: of.Operation, Request: id, Price: 10_000})
		testkit.NoError(t, err)
		_, err = l.Approve(t.Context(), asked.ID)
		testkit.NoError(t, err)
		of.Approval = asked.ID
		testkit.NoError(t, l.Reserve(withIntent(t.Context(), of), client.Reservation{ID: id, Price: 1, Amount: 10_000 - charged}))
		testkit.NoError(t, l.close(t.Context(), of, id, client.Outcome{Status: 409, Charged: charged}))
	}
	got, err := l.Approvals(t.Context(), time.Time{}.AddDate(1970, 0, 0))
	if err != nil || len(got) != 1 || got[0].Peer != "bob" || got[0].Amount != 10_000 {
		t.Errorf("approvals %+v, %v; want only what was charged", got, err)
	}
}

// TestGivenUpCalls: a call that was given up is open until the next one of its payment channel shows that it was not charged. A payment
// that was never signed is not open.
func TestGivenUpCalls(t *testing.T) {
	t.Parallel()
	for added, open := range map[uint64]uint64{4000: 0, 5000: 1000} {
		l := openLedger(t, t.TempDir())
		pay := func(id string, amount uint64) intent {
			of := intent{ID: id, Operation: pollOperation}
			testkit.NoError(t, l.Reserve(withIntent(t.Context(), of), client.Reservation{ID: id, Amount: amount, Channel: "0x1"}))
			return of
		}
		sign(t, l, pay("1", 1000), nonce(1), 1)
		testkit.NoError(t, l.drop(t.Context(), "1"))
		pay("2", 1000)
		of := pay("3", added)
		sign(t, l, of, nonce(2), 1)
		testkit.NoError(t, l.close(t.Context(), of, "3", client.Outcome{Status: 200, Charged: 5000}))
		got, err := l.Report(t.Context(), time.Time{}.AddDate(1970, 0, 0))
		if err != nil || len(got) != 1 || got[0].Charged != 5000 || got[0].Open != open {
			t.Errorf("after a voucher for %d more: %+v, %v; want %d open", added, got, err, open)
		}
	}
}

// TestBusyCall: a call that waited in vain for the same one of another process has an open payment only if that one signed a payment.
func TestBusyCall(t *testing.T) {
	t.Parallel()
	l := openLedger(t, t.TempDir())
	path, err := l.callLock("r")
	testkit.NoError(t, err)
	lock, err := lockfile.Wait(t.Context(), path)
	testkit.NoError(t, err)
	defer lock.Release()
	ended, end := context.WithTimeout(t.Context(), 0)
	defer end()
	for _, signed := range []bool{false, true} {
		if signed {
			sign(t, l, intent{ID: "1", Request: "r"}, nonce(1), 1)
		}
		err := l.alone(ended, "r", nil)
		if _, open := errors.AsType[*OpenError](err); open != signed || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("signed %t: %v", signed, err)
		}
	}
}

// TestReport: costs are summed as asked, from the ledger.
func TestReport(t *testing.T) {
	t.Parallel()
	l := openLedger(t, t.TempDir())
	start := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	clock := start
	l.now = func() time.Time { return clock }
	call := func(id, operation, peer string, price uint64, then ...func(of intent) error) {
		t.Helper()
		of := intent{ID: id, Operation: operation, Peer: peer}
		err := l.Reserve(withIntent(t.Context(), of), client.Reservation{ID: id, Price: price, Amount: price})
		for _, step := range then {
			err = errors.Join(err, step(of))
		}
		testkit.NoError(t, err)
	}
	hash := nonce(7)
	signed := func(of intent) error { sign(t, l, of, nonce(1), 1); return nil }
	closed := func(status int, charged uint64, transaction string) func(intent) error {
		header, err := x402.EncodeSettleResponse(&x402.SettleResponse{Success: true, Transaction: transaction})
		testkit.NoError(t, err)
		return func(of intent) error {
			outcome := client.Outcome{Status: status, Charged: charged, Header: http.Header{}}
			outcome.Header.Set(x402.HeaderPaymentResponse, header)
			return l.close(t.Context(), of, of.ID, outcome)
		}
	}
	call("1", "sendPrivateMessage", "bob", 5000, signed, closed(200, 5000, hash))
	call("2", "sendPrivateMessage", "=eve", 5000, signed, closed(404, 5000, ""))
	call("6", "sendPrivateMessage", "refused", 5000, signed, closed(404, 0, ""))
	clock = start.Add(day)
	call("3", "sendPrivateMessage", "bob", 5000, signed)
	call("4", "listUnreadMessages", "", 1000, func(of intent) error {
		l.Release(t.Context(), client.Reservation{ID: of.ID}, false)
		return nil
	})
	call("5", "searchAgents", "", 5000, signed, closed(404, 5000, ""), signed, closed(200, 0, "")) // a credit

	byPeer, err := l.Report(t.Context(), start, "operation", "peer")
	testkit.NoError(t, err)
	want := []Costs{
		{Operation: "searchAgents", Calls: 1, Charged: 5000},
		{Operation: "sendPrivateMessage", Peer: "=eve", Calls: 1, Charged: 5000},
		{Operation: "sendPrivateMessage", Peer: "bob", Calls: 2, Charged: 5000, Open: 5000, Transactions: []string{hash}},
	}
	if diff := cmp.Diff(want, byPeer); diff != "" {
		t.Errorf("by operation and peer (-want +got):\n%s", diff)
	}
	byDay, err := l.Report(t.Context(), start.Add(time.Hour), "day")
	testkit.NoError(t, err)
	if diff := cmp.Diff([]Costs{{Day: "2026-12-02", Calls: 2, Charged: 5000, Open: 5000}}, byDay); diff != "" {
		t.Errorf("by day (-want +got):\n%s", diff)
	}
	var csv strings.Builder
	testkit.NoError(t, WriteCSV(&csv, byPeer[1:]))
	if diff := cmp.Diff("day,operation,peer,calls,charged_usd,open_usd,transactions\n"+
		",sendPrivateMessage,'=eve,1,0.005000,0.000000,\n,sendPrivateMessage,bob,2,0.005000,0.005000,"+hash+"\n", csv.String()); diff != "" {
		t.Errorf("CSV (-want +got):\n%s", diff)
	}
}
