package service

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// hold runs a statement that locks something, in a transaction that commit ends.
func (w *world) hold(statement string, values ...any) (commit func()) {
	t := w.T
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	holder, err := pgx.Connect(ctx, w.DatabaseURL)
	must(err)
	t.Cleanup(func() { _ = holder.Close(context.WithoutCancel(ctx)) })
	tx, err := holder.Begin(ctx)
	must(err)
	_, err = tx.Exec(ctx, statement, values...)
	must(err)
	return func() { must(tx.Commit(ctx)) }
}

// whileWaiting runs action in a goroutine until it waits for a lock, then meanwhile, and returns when action has ended.
func (w *world) whileWaiting(action, meanwhile func()) {
	w.T.Helper()
	done := make(chan struct{})
	go func() { defer close(done); action() }()
	waits := func() bool {
		return w.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	}
	if !testkit.Eventually(10*time.Second, waits) {
		w.T.Error("nothing waits for a lock")
	}
	meanwhile()
	<-done
}

// erase erases a suspended account, without what follows when calls are over.
func (o *operator) erase(a *agent) {
	if _, err := o.on.EraseAgent(o.w.T.Context(), o.by, o.id(a.ID)); err != nil {
		o.w.T.Error(err)
	}
}

// TestErasureLetsOthersCall: others send, react and pin while the messages of an agent are erased, and its pins are gone after it.
func TestErasureLetsOthersCall(t *testing.T) {
	t.Parallel()
	f := newFull(t)
	o := f.operator()
	o.suspend(f.agent, "")
	agent := o.id(f.agent.ID)
	commit := f.hold("SELECT 1 FROM messages WHERE sender_id = $1 FOR UPDATE", agent)
	f.whileWaiting(func() { o.erase(f.agent) }, func() {
		defer commit()
		f.peer.sendGroup(f.group, "meanwhile")
		read, err := f.peer.ListGroupMessagesWithResponse(t.Context(), client.ListGroupMessagesRequest{ChatID: f.group})
		testkit.Require200(t, "a read", read, err)
		for _, message := range read.JSON200.Messages {
			if message.Content == trace+" after it" { // the other one is pinned
				f.peer.groupMust("pin", f.group, "message_id", message.MessageID)
			}
		}
		if pins := f.peer.group(f.group).PinnedMessages; len(pins) != 3 {
			t.Errorf("the pins meanwhile are %+v", pins)
		}
	})
	if pins := f.peer.group(f.group).PinnedMessages; len(pins) != 1 || pins[0].Content != "before and after" {
		t.Errorf("the pins after the erasure are %+v", pins)
	}
}

// TestErasureFinishes: FinishErasure removes what others wrote about the agent while it was erased.
func TestErasureFinishes(t *testing.T) {
	t.Parallel()
	f := newFull(t)
	o := f.operator()
	o.suspend(f.agent, "")
	agent := o.id(f.agent.ID)
	var late string
	commit := f.hold("SELECT 1 FROM conversations WHERE id = $1 FOR UPDATE", o.id(f.group))
	f.whileWaiting(func() { o.erase(f.agent) }, func() {
		late = f.peer.createGroup("late", f.agent, f.third)
		f.peer.block(f.agent)
		commit()
	})
	about := func() int {
		return f.Count(`SELECT (SELECT count(*) FROM memberships WHERE agent_id = $1 AND conversation_id = $2) 
			+ (SELECT count(*) FROM notices WHERE agent_id = $1)
			+ (SELECT count(*) FROM blocks WHERE blocker_id = $1 OR blocked_id = $1)`, agent, o.id(late))
	}
	if rows := about(); rows != 2 {
		t.Errorf("%d rows were written about the agent meanwhile, want a membership and a block", rows)
	}
	o.must(o.on.FinishErasure(t.Context(), agent))
	if rows := about(); rows != 0 {
		t.Errorf("%d rows about the agent are left", rows)
	}
	if info := f.peer.group(late); f.peer.groupOf(late) != "peer* third" || info.MemberCount != 2 {
		t.Errorf("the group chat has the members %s and counts %d", f.peer.groupOf(late), info.MemberCount)
	}
	f.peer.ask("/agent/block", fields{"agent_id": f.agent}).WantRefused(t, "block it again", http.StatusNotFound, "agent_not_found")
}

// TestCountErasureLocksNothing: a dry run lets the account's own calls go on.
func TestCountErasureLocksNothing(t *testing.T) {
	t.Parallel()
	f := newFull(t)
	o := f.operator()
	commit := f.hold("SELECT 1 FROM payments WHERE agent_id = $1 FOR UPDATE", o.id(f.agent.ID))
	defer commit()
	if counted, err := o.on.CountErasure(t.Context(), o.id(f.agent.ID)); err != nil || counted.Messages == 0 {
		t.Errorf("%+v, %v", counted, err)
	}
}
