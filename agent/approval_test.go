package agent

import (
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestDeadApproval: a call asks for an approval that can be given, also later than ten minutes after it asked first.
func TestDeadApproval(t *testing.T) {
	t.Parallel()
	l := openLedger(t, t.TempDir())
	at := time.Now()
	l.now = func() time.Time { return at }
	ask := func() string {
		asked, err := l.Ask(t.Context(), Approval{Operation: "createChannel", Request: "r", Price: 500_000})
		testkit.NoError(t, err)
		return asked.ID
	}
	first := ask()
	at = at.Add(approvalTime)
	second := ask()
	if second == first {
		t.Error("a call asks for an approval that has ended")
	}
	at = at.Add(approvalTime - time.Minute)
	if _, err := l.Approve(t.Context(), second); err != nil {
		t.Errorf("the approval that the call asks for: %v", err)
	}
	at = at.Add(2 * time.Minute)
	if found, err := l.given(t.Context(), intent{Request: "r"}); err != nil || found == nil || ask() != second {
		t.Errorf("a given approval ends when it could no longer be asked for: %v, %v", found, err)
	}
}
