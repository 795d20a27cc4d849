package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/agent/agenttest"
	"github.com/parley-chat/parley/internal/testkit"
)

// call makes a call that must succeed.
func call(t *testing.T, a *agent.Agent, operation string, arguments map[string]any) *agent.Result {
	t.Helper()
	result, err := a.Call(t.Context(), operation, arguments, agent.CallOptions{Confirmed: true})
	if err != nil {
		t.Fatalf("%s: %v", operation, err)
	}
	testkit.NoError(t, a.Seen(t.Context(), result))
	return result
}

// field returns a field of a response.
func field(t *testing.T, result *agent.Result, name string) string {
	t.Helper()
	var body map[string]any
	testkit.NoError(t, json.Unmarshal(result.Body, &body))
	value, _ := body[name].(string)
	return value
}

// TestRefusedBeforePaying: what the contract does not allow costs nothing.
func TestRefusedBeforePaying(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	before := w.Revenue()
	for name, arguments := range map[string]map[string]any{
		"no arguments":   {},
		"another type":   {"recipient_agent_id": 5, "content": "hello"},
		"unknown fields": {"recipient_agent_id": "agent_01m82ym9rbe85tm7c4cv5br6k2", "content": "hello", "to": "bob"},
	} {
		if _, err := alice.Call(t.Context(), "sendPrivateMessage", arguments, agent.CallOptions{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := alice.Call(t.Context(), "sendMessage", nil, agent.CallOptions{}); err == nil ||
		!strings.Contains(err.Error(), "there is no operation") {
		t.Errorf("an unknown operation: %v", err)
	}
	if _, err := w.agreed(w.wallet()).Call(t.Context(), "listUnreadMessages", nil, agent.CallOptions{}); !errors.Is(err, agent.ErrNoAccount) {
		t.Errorf("a call without an account: %v", err)
	}
	if w.Revenue() != before {
		t.Errorf("%d was paid", w.Revenue()-before)
	}
}

// TestLostResponse: a call whose response was lost is finished by making it again, in another process, and charged once.
func TestLostResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, of := w.register("alice")
	before := w.Revenue()
	w.AnswerPaid(agenttest.LoseResponse)
	create := map[string]any{"name": "team"}
	_, err := alice.Call(t.Context(), "createGroupChat", create, agent.CallOptions{Patience: 2e9, Confirmed: true})
	if agent.CodeOf(err) != "outcome_open" {
		t.Fatalf("the error is %v, want outcome_open", err)
	}
	w.Answer(nil)
	again := w.open(of)
	first := call(t, again, "createGroupChat", create)
	if paid := w.Revenue() - before; paid != 150_000 || first.Charged != 150_000 || !first.Earlier {
		t.Errorf("%d was paid, %d is in the result, want 150000 once", paid, first.Charged)
	}
	second := call(t, again, "createGroupChat", create)
	if field(t, first, "chat_id") == field(t, second, "chat_id") {
		t.Error("a call that was made again after its response was seen is not a new call")
	}
}

// TestUnseenMessages: messages that were fetched and not seen come again, without a payment, before others.
func TestUnseenMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	me := field(t, call(t, bob, "getOwnAgent", nil), "agent_id")
	fetch := func(earlier bool, want ...string) (result *agent.Result) {
		t.Helper()
		before := w.Revenue()
		page, err := bob.Fetch(t.Context(), map[string]any{}, false, 0)
		testkit.NoError(t, err)
		defer page.Release() // as the death of the process does
		result = page.Result
		var got []string
		for _, m := range page.Messages {
			got = append(got, m.Content)
		}
		if free := w.Revenue() == before; !slices.Equal(got, want) || result.Earlier != earlier || free != earlier {
			t.Errorf("got %q, earlier %t, free %t; want %q, earlier and free %t", got, result.Earlier, free, want, earlier)
		}
		return result
	}
	for _, content := range []string{"first", "second"} {
		call(t, alice, "sendPrivateMessage", map[string]any{"recipient_agent_id": me, "content": content})
		fetch(false, content)
		testkit.NoError(t, bob.Seen(t.Context(), fetch(true, content)))
	}
	fetch(false)
}

// TestFollow: messages arrive while an agent follows, fetches wait at the server, and messages that were not taken come again.
func TestFollow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	me := field(t, call(t, bob, "getOwnAgent", nil), "agent_id")
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var got []string
	quick := agent.Polling{Wait: time.Minute, First: 50 * time.Millisecond, Longest: 200 * time.Millisecond}
	before := w.Revenue()
	followed := make(chan error, 1)
	failing := errors.New("cannot take it")
	follow := func() error {
		return bob.Follow(ctx, quick, func(inbox *agent.Page) error {
			for _, message := range inbox.Messages {
				got = append(got, message.Content)
			}
			switch len(got) {
			case 1:
				return failing
			case 3:
				stop()
			}
			return nil
		})
	}
	go func() { followed <- follow() }()
	time.Sleep(2 * time.Second)
	other := field(t, call(t, alice, "getOwnAgent", nil), "agent_id")
	began := time.Now()
	call(t, bob, "sendPrivateMessage", map[string]any{"recipient_agent_id": other, "content": "by the way"})
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("a call beside one that waits took %v", took)
	}
	call(t, alice, "sendPrivateMessage", map[string]any{"recipient_agent_id": me, "content": "wake up"})
	if err := <-followed; !errors.Is(err, failing) {
		t.Errorf("got %v, want that the message was not taken", err)
	}
	if paid := w.Revenue() - before; paid != 2*1000+2*5000 {
		t.Errorf("%d was paid, want one fetch, one profile and two messages", paid)
	}
	go func() { followed <- follow() }()
	call(t, alice, "sendPrivateMessage", map[string]any{"recipient_agent_id": me, "content": "go on"})
	if err := <-followed; !errors.Is(err, context.Canceled) || !slices.Equal(got, []string{"wake up", "wake up", "go on"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if paid := w.Revenue() - before; paid != 3*1000+3*5000 {
		t.Errorf("%d was paid, want two fetches, one profile and three messages", paid)
	}
}
