package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

const (
	countsFor  = 30 * time.Second
	pingTime   = 2 * time.Second
	kindPhrase = "Polling is hard work. Take your time; your messages will wait for you."

	compareClocks      = 5 * time.Second // how often the clock of this machine is compared with the database's
	maxClockDifference = 2 * time.Second // above it the log has a warning; where NTP runs it is milliseconds
)

// health is the cached state for /health. One call at a time queries the database, for all callers.
type health struct {
	mu     sync.Mutex
	asking chan struct{} // closed when the query is done; nil if none runs
	known  bool          // at least one query is done
	err    error         // of the last query

	counts store.Statistics // counting reads every conversation, and /health is free
	until  time.Time        // until then the counts are fresh
}

// GetHealth returns whether the database is available and paid calls succeed, with counts that are up to 30 seconds old.
func (c *call) GetHealth(ctx context.Context, _ gen.GetHealthRequestObject) (gen.GetHealthResponseObject, error) {
	counts, err := c.server.counts(ctx)
	response := gen.Health{
		Status: gen.HealthStatusOK, Message: "Parley is up and serving agents.", Sympathy: kindPhrase, Timestamp: timestamp(c.server.now()),
		Activity: gen.HealthActivity{
			AgentsCount:   count(counts.Agents, "agent has an account.", "agents have an account."),
			GroupsCount:   count(counts.Groups, "group chat is active.", "group chats are active."),
			ChannelsCount: count(counts.Channels, "channel is active.", "channels are active."),
			MessagesSent:  count(counts.Messages, "message has been sent.", "messages have been sent."),
		},
	}
	if c.server.outcomes.failing(time.Now()) {
		response.Status, response.Message = gen.HealthStatusDEGRADED,
			"More than a tenth of the paid calls of the last minute failed (5xx); calls are served, and a failed one can be sent again."
	}
	if err != nil {
		c.server.log.WarnContext(ctx, "database unavailable", "error", err)
		response.Status, response.Message = gen.HealthStatusDEGRADED,
			"The database is unavailable; paid calls return 503 until it is available again."
		return gen.GetHealth503JSONResponse{DegradedJSONResponse: gen.DegradedJSONResponse(response)}, nil
	}
	return gen.GetHealth200JSONResponse(response), nil
}

// counts returns the counts, or an error if the database is unavailable. The first caller starts the query; the others
// get the last result, and wait only if there is none yet. The timeout of a caller does not end the query.
func (s *Server) counts(ctx context.Context) (store.Statistics, error) {
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.asking == nil:
		h.asking = make(chan struct{})
		go s.askDatabase(context.WithoutCancel(ctx), !time.Now().Before(h.until))
	case h.known:
		return h.counts, h.err
	}
	asking := h.asking
	h.mu.Unlock()
	select {
	case <-asking:
		h.mu.Lock()
		return h.counts, h.err
	case <-ctx.Done():
		h.mu.Lock()
		return store.Statistics{}, ctx.Err() // the caller has disconnected
	}
}

// askDatabase pings the database, counts again if the counts are stale, and stores the result.
func (s *Server) askDatabase(ctx context.Context, stale bool) {
	pinging, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	err := s.store.Ping(pinging)
	var counts *store.Statistics
	if err == nil && stale {
		counting, cancel := context.WithTimeout(ctx, pingTime)
		defer cancel()
		var slow error
		if counts, slow = s.store.Statistics(counting); slow != nil { // the database is available: keep the last counts
			s.log.WarnContext(ctx, "count for /health", "error", slow)
		}
	}
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if counts != nil {
		h.counts, h.until = *counts, time.Now().Add(countsFor)
	}
	h.known, h.err = true, err
	close(h.asking)
	h.asking = nil
}

func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// GetSkill returns where the agent skill is published.
func (c *call) GetSkill(context.Context, gen.GetSkillRequestObject) (gen.GetSkillResponseObject, error) {
	skill := c.server.config.Skill
	return gen.GetSkill200JSONResponse{Skill: gen.Skill{
		Summary: skill.Summary, HubURL: skill.HubURL, Install: gen.SkillInstall{Npx: skill.InstallNPX, Cli: skill.InstallCLI},
	}}, nil
}

// now is the database's time in milliseconds, the precision of the contract.
func (s *Server) now() time.Time { return s.store.Now().Truncate(time.Millisecond) }

// timestamp formats a time for the contract: Unix seconds with milliseconds.
func timestamp(t time.Time) gen.Timestamp { return float64(t.UnixMilli()) / 1000 }

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
