package store

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// TestLargePatternsCostLittle: an expression that is refused is free for its sender, so it must not take much memory. Not
// parallel, because it measures the memory of the process.
func TestLargePatternsCostLittle(t *testing.T) { //nolint:paralleltest // see above
	for _, query := range []string{
		strings.Repeat(`(\w?){999}`, 25), strings.Repeat(`(\pL?){999}`, 23), "(?:" + strings.Repeat("a?", 123) + "){1000}",
		"(?:" + strings.Repeat("a", 246) + "){1000}", "(?:" + strings.Repeat(`\pL?`, 61) + "){1000}", strings.Repeat(`\pL{1000}`, 28),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := parsePattern(query)
		runtime.ReadMemStats(&after)
		const most = 4 << 20
		if used := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrPatternTooLarge) || used > most {
			t.Errorf("%.30q…: %v and %d bytes, want ErrPatternTooLarge and at most %d", query, err, used, most)
		}
	}
}
