package agent_test

import (
	"errors"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestCredit: a call was paid and then rejected. Its payment pays a corrected call, also in another process and after another rejection.
func TestCredit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, of := w.register("alice")
	bob, _ := w.register("bob")
	alicesID := field(t, call(t, alice, "getOwnAgent", nil), "agent_id")
	create := func(name string) string {
		return field(t, call(t, bob, "createGroupChat", map[string]any{"name": name, "initial_member_ids": []any{alicesID}}), "chat_id")
	}
	first, second := create("first"), create("second")
	message := func(chat string) map[string]any { return map[string]any{"chat_id": chat, "content": "hello"} }

	w.Facilitator.PendSettlements(1000)
	if _, err := alice.Call(t.Context(), "sendGroupMessage", message(first), agent.CallOptions{Patience: time.Second}); err == nil {
		t.Fatal("the call has an outcome")
	}
	w.Facilitator.PendSettlements(0)
	call(t, bob, "deleteGroupChat", map[string]any{"chat_id": first})
	alice = w.open(of)
	var err error
	for range 30 {
		_, err = alice.Call(t.Context(), "sendGroupMessage", message(first), agent.CallOptions{Patience: 2 * time.Second})
		if agent.CodeOf(err) != "outcome_open" {
			break
		}
		time.Sleep(time.Second)
	}
	refused, ok := errors.AsType[*agent.Failure](err)
	if !ok || refused.Charged == nil || !*refused.Charged {
		t.Fatalf("the call ended with %v, want a rejection that was charged", err)
	}

	before := w.Revenue()
	if _, err := alice.Call(t.Context(), "sendGroupMessage", message(first), agent.CallOptions{}); err == nil {
		t.Error("the rejected call has a result")
	}
	alice2 := w.open(of)
	result, err := alice2.Call(t.Context(), "sendGroupMessage", message(second), agent.CallOptions{})
	if err != nil || result.Charged != 0 || w.Revenue() != before {
		t.Errorf("the corrected call: %+v, %v; it cost %d", result, err, w.Revenue()-before)
	}
	testkit.NoError(t, alice2.Seen(t.Context(), result))
	if credits, err := alice2.Ledger().Credits(); err != nil || len(credits) != 0 {
		t.Errorf("%d credits are left, %v", len(credits), err)
	}
	if call(t, alice2, "sendGroupMessage", message(second)); w.Revenue() != before+5000 {
		t.Errorf("the next call cost %d", w.Revenue()-before)
	}
	if messages := w.Count("SELECT count(*) FROM messages"); messages != 2 {
		t.Errorf("%d messages were sent, want 2", messages)
	}
}
