package store

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/promises"
)

// TestStoreFigures: the documents have the figures of the program.
func TestStoreFigures(t *testing.T) {
	t.Parallel()
	promises.Says(t, "S7", SecretLifetime)
	promises.Says(t, "S12", TANLifetime)
	promises.Says(t, "S13", cachedFor)
	promises.Says(t, "S34", "1 MiB", "2 MiB")
	promises.Says(t, "S35", quickLookUp+searchBounds.lookUp, searchBounds.messages)
	promises.Says(t, "P33", failureLifetime)
	promises.Says(t, "O8", Serving.Transaction, "twenty")
	promises.Says(t, "O11", "three seconds", lockTries)
	promises.Says(t, "O29", maxUnreadNotices, TANLifetime)
	promises.Says(t, "O38", cachedFor)
	limits := (&guard{}).sessionLimits(nil)
	if !strings.Contains(limits, "SET tcp_keepalives_idle = 8;") || !strings.Contains(limits, "SET tcp_keepalives_interval = 4;") ||
		!strings.Contains(limits, "SET tcp_keepalives_count = 3;") {
		t.Errorf("O8 says twenty seconds, and a session ends after: %s", limits)
	}
	if maxPageContent != 1<<20 || maxPageJSON != 2<<20 || lockWait != "3s" || Serving.Call > 5*time.Second {
		t.Error("S34 says 1 MiB and 2 MiB, O11 three seconds, O6 five seconds")
	}
}
