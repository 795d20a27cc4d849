package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// healthCache holds the last counts: they cost a look at every conversation, and /health is free.
type healthCache struct {
	sync.Mutex
	counts store.Statistics
	until  time.Time
}

const (
	countsFor  = 30 * time.Second
	kindPhrase = "Polling is hard work. Take your time; your messages will wait for you."
)

// GetHealth tells whether the database answers, with counts that are up to 30 seconds old.
func (s *Server) GetHealth(ctx context.Context, _ gen.GetHealthRequestObject) (gen.GetHealthResponseObject, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	counts, err := s.counts(ctx)
	health := gen.Health{
		Status: gen.HealthStatusOK, Message: "Parley is up and serving agents.", Sympathy: kindPhrase, Timestamp: timestamp(now()),
		Activity: gen.HealthActivity{
			AgentsCount:   count(counts.Agents, "agent has an account.", "agents have an account."),
			GroupsCount:   count(counts.Groups, "group chat is active.", "group chats are active."),
			ChannelsCount: count(counts.Channels, "channel is active.", "channels are active."),
			MessagesSent:  count(counts.Messages, "message has been sent.", "messages have been sent."),
		},
	}
	if err != nil {
		s.log.WarnContext(ctx, "database away", "error", err)
		health.Status, health.Message = gen.HealthStatusDEGRADED, "The database is away; paid calls answer 503 until it is back."
		return gen.GetHealth503JSONResponse{DegradedJSONResponse: gen.DegradedJSONResponse(health)}, nil
	}
	return gen.GetHealth200JSONResponse(health), nil
}

// counts returns the cached counts, or counts again; with an error, the last known ones.
func (s *Server) counts(ctx context.Context) (store.Statistics, error) {
	s.health.Lock()
	defer s.health.Unlock()
	if time.Now().Before(s.health.until) {
		return s.health.counts, s.store.Ping(ctx)
	}
	counts, err := s.store.Statistics(ctx)
	if err != nil {
		return s.health.counts, err
	}
	s.health.counts, s.health.until = *counts, time.Now().Add(countsFor)
	return *counts, nil
}

func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// GetSkill tells an agent where it learns to use the service.
func (s *Server) GetSkill(context.Context, gen.GetSkillRequestObject) (gen.GetSkillResponseObject, error) {
	skill := s.config.Skill
	return gen.GetSkill200JSONResponse{Skill: gen.Skill{
		Summary: skill.Summary, HubURL: skill.HubURL, Install: gen.SkillInstall{Npx: skill.InstallNPX, Cli: skill.InstallCLI},
	}}, nil
}
