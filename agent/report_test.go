package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestReport: costs are summed as asked, from the ledger.
func TestReport(t *testing.T) {
	t.Parallel()
	l := openLedger(t, t.TempDir())
	start := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	clock := start
	l.now = func() time.Time { return clock }
	call := func(id, operation, peer string, price uint64, answer ...entry) {
		t.Helper()
		if err := l.locked(t.Context(), func(add func(entry) error) error {
			for _, e := range append([]entry{{Step: stepReserved, ID: id, Operation: operation, Peer: peer, Price: price, Amount: price}}, answer...) {
				e.ID = id
				if err := add(e); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	call("1", "sendPrivateMessage", "bob", 5000, entry{Step: stepAnswered, Charged: 5000, Transaction: "0x01"})
	call("2", "sendPrivateMessage", "=eve", 5000, entry{Step: stepRefused})
	clock = start.Add(day)
	call("3", "sendPrivateMessage", "bob", 5000, entry{Step: stepSigned})
	call("4", "listUnreadMessages", "", 1000, entry{Step: stepReleased, Amount: 1000})

	byPeer, err := l.Report(t.Context(), start, Grouping{Operation: true, Peer: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []Costs{
		{Grouped: Grouped{Operation: "listUnreadMessages"}, Calls: 1},
		{Grouped: Grouped{Operation: "sendPrivateMessage", Peer: "=eve"}, Calls: 1},
		{Grouped: Grouped{Operation: "sendPrivateMessage", Peer: "bob"}, Calls: 2, Charged: 5000, Open: 5000, Transactions: []string{"0x01"}},
	}
	if diff := cmp.Diff(want, byPeer); diff != "" {
		t.Errorf("by operation and peer (-want +got):\n%s", diff)
	}
	byDay, err := l.Report(t.Context(), start.Add(time.Hour), Grouping{Day: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Costs{{Grouped: Grouped{Day: "2026-12-02"}, Calls: 2, Open: 5000}}, byDay); diff != "" {
		t.Errorf("by day (-want +got):\n%s", diff)
	}
	var csv strings.Builder
	if err := WriteCSV(&csv, byPeer[1:]); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("day,operation,peer,calls,charged_usd,open_usd,transactions\n"+
		",sendPrivateMessage,'=eve,1,0.000000,0.000000,\n,sendPrivateMessage,bob,2,0.005000,0.005000,0x01\n", csv.String()); diff != "" {
		t.Errorf("CSV (-want +got):\n%s", diff)
	}
}
