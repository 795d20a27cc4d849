package server

import (
	"context"
	"time"

	"github.com/parley-chat/parley/gen"
)

// now is the database's time in milliseconds, the precision of the contract.
func (s *Server) now() time.Time { return s.store.Now().Truncate(time.Millisecond) }

// timestamp formats a time for the contract: Unix seconds with milliseconds.
func timestamp(t time.Time) gen.Timestamp { return float64(t.UnixMilli()) / 1000 }

const (
	// compareClocks is how often the clock of this machine is compared with the database's.
	compareClocks = 5 * time.Second
	// maxClockDifference is how far they may be apart before the log has a warning. Where NTP runs it is milliseconds.
	maxClockDifference = 2 * time.Second
)

// watchClock warns when the clock of this machine begins to differ from the database's, until ctx ends.
func (s *Server) watchClock(ctx context.Context) {
	tick := time.NewTicker(compareClocks)
	defer tick.Stop()
	for warned := false; ; {
		difference := s.store.ClockDifference()
		differs := difference.Abs() > maxClockDifference
		if differs && !warned {
			s.log.WarnContext(ctx, "the clocks of this machine and of the database differ; the server uses the database's; check NTP on both",
				"difference_s", difference.Seconds())
		}
		warned = differs
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
