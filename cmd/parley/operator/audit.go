package operator

import (
	"context"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
)

// audit shows what operators did.
type audit struct {
	List auditList `cmd:"" help:"List what operators did, newest first."`
}

type auditList struct {
	Ledger ledger    `embed:""`
	Action string    `placeholder:"NAME" help:"The action, such as agents.suspend."`
	Actor  string    `placeholder:"NAME" help:"Who acted."`
	Target *targetID `placeholder:"ID" help:"The agent, conversation, message or payment that was acted on."`
	Agent  string    `placeholder:"AGENT" help:"The agent concerned: its id or username."`
	Since  moment    `placeholder:"TIME" help:"At this time or later: 2026-11-01 (UTC) or 2026-11-01T08:30:00Z."`
	Until  moment    `placeholder:"TIME" help:"Before this time."`
	Limit  int       `default:"50" help:"Maximum number; 0 for all (${default})."`
	Format string    `enum:"table,csv,json" default:"table"`
}

var auditColumns = []columnOf[store.AuditEntry]{
	{"id", func(e store.AuditEntry) any { return e.ID.String() }},
	{"created_at", func(e store.AuditEntry) any { return timestamp(e.CreatedAt) }},
	{"actor", func(e store.AuditEntry) any { return e.Actor }},
	{"action", func(e store.AuditEntry) any { return e.Action }},
	{"target_kind", func(e store.AuditEntry) any { return e.TargetKind }},
	{"target", func(e store.AuditEntry) any { return auditTarget(e) }},
	{"agent_id", func(e store.AuditEntry) any { return ifSet(e.AgentID, server.AgentID) }},
	{"reason", func(e store.AuditEntry) any { return e.Reason }},
	{"details", func(e store.AuditEntry) any { return e.Details }},
}

// auditTarget is the id of the target as agents see it. A payment and a conversation of unknown kind have a UUID.
func auditTarget(e store.AuditEntry) string {
	switch kind, _ := e.Details["kind"].(string); {
	case e.TargetKind == store.TargetAgent:
		return server.AgentID(e.TargetID)
	case e.TargetKind == store.TargetMessage:
		return server.MessageID(e.TargetID)
	case e.TargetKind == store.TargetConversation && kind != "":
		return server.ConversationID(kind, e.TargetID)
	}
	return e.TargetID.String()
}

func (a *auditList) Run(ctx context.Context, to console.Console) error {
	return a.Ledger.with(ctx, func(database *store.Store) error {
		filter := store.AuditFilter{Action: a.Action, Actor: a.Actor, Since: a.Since.Time, Until: a.Until.Time}
		if a.Target != nil {
			filter.Target = &a.Target.UUID
		}
		if a.Agent != "" {
			agent, err := findAgent(ctx, database, a.Agent)
			if err != nil {
				return err
			}
			filter.AgentID = &agent.ID
		}
		inTable := []string{"created_at", "actor", "action", "target", "reason"}
		return list(to.Out, a.Format, a.Limit, auditColumns, inTable, database.Audit(ctx, filter))
	})
}
