package edge

import (
	"log/slog"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// LogLimit limits log lines that callers can cause at no cost, which would fill the disk: about preflight requests, about requests that
// were rejected with 429 or that nobody waited for, which the metrics count, and what net/http says about connections.
type LogLimit struct {
	lines   *rate.Limiter
	omitted atomic.Int64
}

// NewLogLimit allows ten lines, and then one a second.
func NewLogLimit() *LogLimit { return &LogLimit{lines: rate.NewLimiter(1, 10)} }

// Take reports whether a line may be written, and how many were omitted before it.
func (l *LogLimit) Take() (omitted int64, ok bool) {
	if !l.lines.Allow() {
		l.omitted.Add(1)
		return 0, false
	}
	return l.omitted.Swap(0), true
}

// connectionLog logs what net/http says about connections.
type connectionLog struct {
	log   *slog.Logger
	lines *LogLimit
}

func (l connectionLog) Write(line []byte) (int, error) {
	if omitted, ok := l.lines.Take(); ok {
		l.log.Warn("connection failed", slog.String("error", strings.TrimSpace(string(line))), slog.Int64("omitted", omitted))
	}
	return len(line), nil
}
