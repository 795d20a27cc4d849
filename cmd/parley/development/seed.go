package development

import (
	"context"
	"fmt"
	"time"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/operator"
	"github.com/parley-chat/parley/store"
)

// seed fills an empty, migrated database with the data of one busy year, for measurements.
type seed struct {
	Database      operator.SettingsDatabase `embed:""`
	Agents        int64                     `default:"100000" help:"Number of agents; their API keys are unknown (${default})."`
	Conversations int64                     `default:"20000" help:"Number of private chats and group chats (${default})."`
	Messages      int64                     `default:"1000000" help:"Number of messages (${default})."`
	Subscribers   int64                     `default:"100000" help:"Number of subscribers of the only channel (${default})."`
}

func (s *seed) Run(ctx context.Context, to console.Console) error {
	database, err := s.Database.Open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	if err := database.CheckSchema(ctx); err != nil {
		return err
	}
	began := time.Now()
	made, err := database.Seed(ctx,
		store.Seeding{Agents: s.Agents, Conversations: s.Conversations, Messages: s.Messages, Subscribers: s.Subscribers},
		func(step string) { fmt.Fprintf(to.Err, "%6.1f s  %s\n", time.Since(began).Seconds(), step) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.Out, "made %d agents, %d private chats, %d group chats, %d channel, %d memberships and %d messages in %.1f s\n",
		made.Agents, made.PrivateChats, made.Groups, made.Channels, made.Memberships, made.Messages, time.Since(began).Seconds())
	return err
}
