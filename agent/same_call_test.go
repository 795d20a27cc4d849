package agent_test

import (
	"context"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestSameCallAtTheSameTime: of two commands that run at the same time and make the same call, also in two processes, one pays. The other
// one gets its response, even if that was seen already. Another key, or a command that begins later without a key, makes another call.
func TestSameCallAtTheSameTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, of := w.register("alice")
	create := func(a *agent.Agent, ctx context.Context, key string) *agent.Result {
		t.Helper()
		result, err := a.Call(ctx, "createGroupChat", map[string]any{"name": "team"}, agent.CallOptions{Key: key, Confirmed: true})
		testkit.NoError(t, err)
		testkit.NoError(t, a.Seen(ctx, result))
		return result
	}
	before := w.Revenue()
	second, command := agent.BeginCommand(t.Context())
	other := w.open(of)
	first := create(alice, t.Context(), "")
	if got := create(other, second, ""); !got.Earlier || field(t, got, "chat_id") != field(t, first, "chat_id") ||
		w.Revenue() != before+150_000 || command.Charged() != 0 {
		t.Errorf("the second command got %+v; %d was paid", got, w.Revenue()-before)
	}
	for name, got := range map[string]*agent.Result{
		"the second call of the same command": create(other, second, ""),
		"a call with a key":                   create(other, second, "again"),
		"a command that begins later":         create(alice, t.Context(), ""),
	} {
		if got.Earlier {
			t.Errorf("%s is not a call of its own", name)
		}
	}
	if got := create(alice, t.Context(), "again"); !got.Earlier {
		t.Errorf("the same key makes another call: %+v", got)
	}
	if paid := w.Revenue() - before; paid != 4*150_000 {
		t.Errorf("%d was paid, want four calls", paid)
	}
}
