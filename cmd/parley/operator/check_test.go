package operator

import (
	"testing"
	"time"

	"github.com/parley-chat/parley/store"
)

// TestCheckFindings: an old PostgreSQL fails, and clocks that differ by a minute are worth a warning.
func TestCheckFindings(t *testing.T) {
	t.Parallel()
	old := inspected(store.Inspection{Version: "14.2", VersionNumber: 140002, Encoding: "UTF8", FoldsLetters: true})
	if old[0].State != failed || old[0].Remedy == "" {
		t.Errorf("PostgreSQL 14: %+v", old)
	}
	var clocks findings
	clocks.clock("database", -time.Minute)
	clocks.newestBlock(-time.Minute)
	if clocks.count(warning) != 2 {
		t.Errorf("a wrong clock: %+v", clocks)
	}
}
