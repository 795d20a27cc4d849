package agent_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// do runs an action that must succeed.
func do(t *testing.T, a *agent.Agent, name string, arguments map[string]any) *agent.Value {
	t.Helper()
	value, err := try(t, a, name, arguments)
	if err != nil {
		t.Fatalf("%s %v: %v", name, arguments, err)
	}
	return value
}

func try(t *testing.T, a *agent.Agent, name string, arguments map[string]any) (*agent.Value, error) {
	t.Helper()
	run := &agent.Run{Agent: a, Context: t.Context(), Args: arguments, Confirmed: true}
	value, err := agent.ActionNamed(name).Do(run)
	if err != nil {
		return nil, err
	}
	return value, run.Seen()
}

// TestNoMoney: a wallet with too little money says how much it has. What was refused for that counts against no limit, however often it is
// tried. With money the call is made.
func TestNoMoney(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	of := wallet{x402.NewKeySigner(w.Wallet(1_003_000)), t.TempDir()}
	w.registerAs(of, "alice") // has 0.002 USD then
	alice := w.Open(of.folder, of.signer, w.Chain)
	before := spent(t, alice)
	for range 3 {
		_, err := alice.Call(t.Context(), "searchAgents", map[string]any{"query": "weather"}, agent.CallOptions{})
		if agent.CodeOf(err) != "no_money" || !strings.Contains(err.Error(), "has 0.002 USDC and the call costs 0.005") ||
			!strings.Contains(err.Error(), alice.Address()) {
			t.Fatalf("a call without money: %v", err)
		}
		if counts := spent(t, alice) - before; counts != 0 {
			t.Errorf("%d counts for a call that the wallet could not pay", counts)
		}
	}
	testkit.NoError(t, w.Ledger.Mint(of.signer.Address(), testkit.Dollar))
	call(t, alice, "searchAgents", map[string]any{"query": "weather"})
}

// TestInboxesShareNothing: of two inboxes at once no message is handed out twice, and none is lost.
func TestInboxesShareNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, of := w.register("alice")
	bob, _ := w.register("bob")
	me := field(t, call(t, alice, "getOwnAgent", nil), "agent_id")
	inboxes := []*agent.Agent{alice, w.open(of)}
	for range 3 {
		call(t, bob, "sendPrivateMessage", map[string]any{"recipient_agent_id": me, "content": "hello"})
		call(t, bob, "sendPrivateMessage", map[string]any{"recipient_agent_id": me, "content": "again"})
		var mu sync.Mutex
		var got []string
		var running sync.WaitGroup
		both := make(chan struct{}, 2)
		w.AnswerPaid(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
			both <- struct{}{}
			next.ServeHTTP(rw, r)
		})
		for _, inbox := range inboxes {
			running.Go(func() {
				value, err := try(t, inbox, "inbox", map[string]any{})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				for _, m := range value.Data["messages"].([]any) {
					got = append(got, m.(map[string]any)["content"].(string))
				}
			})
			<-both
		}
		go func() {
			for range both {
			}
		}()
		running.Wait()
		w.Answer(nil)
		close(both)
		if slices.Sort(got); !slices.Equal(got, []string{"again", "hello"}) {
			t.Errorf("two inboxes got %q, want each message once", got)
		}
	}
}

// TestWalletOfAnotherFolder: a wallet that has an account makes no second one in a new folder by mistake. The payment channel shows it for
// any username. With single payments the server tells nobody which usernames a wallet took: only the same one is refused.
func TestWalletOfAnotherFolder(t *testing.T) {
	t.Parallel()
	eachScheme(t, func(t *testing.T, settings ...func(*server.Config)) {
		w := newWorld(t, settings...)
		_, of := w.register("alice")
		before := w.charged()
		names := []string{"alice", "other"}
		for _, name := range names[:1+len(settings)] {
			elsewhere := w.agreed(wallet{of.signer, t.TempDir()})
			_, err := elsewhere.Register(t.Context(), name, "")
			want := map[bool]string{true: "account_elsewhere", false: "username_taken"}[settings != nil]
			if agent.CodeOf(err) != want || !strings.Contains(err.Error(), "PARLEY_HOME") {
				t.Errorf("an account %s with a wallet that has one: %v", name, err)
			}
		}
		if paid := w.charged() - before; paid > 2*reservePrice {
			t.Errorf("%d was paid", paid)
		}
	})
}

func isLimit(err error) bool { return agent.CodeOf(err) == "limit" }

func isOwned(err error) bool { return agent.CodeOf(err) == "account_elsewhere" }

// TestJoinedBefore: who left or was removed joins again.
func TestJoinedBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	do(t, alice, "channel create", map[string]any{"name": "news"})
	group := do(t, alice, "group create", map[string]any{"name": "team"}).Data["chat_id"]
	do(t, bob, "channel join", map[string]any{"conversation": "#news"})
	do(t, bob, "group join", map[string]any{"conversation": group, "message": "may I?"})
	do(t, bob, "channel leave", map[string]any{"conversation": "#news"})
	if again := do(t, bob, "channel join", map[string]any{"conversation": "#news"}).Data; again["already"] != nil {
		t.Errorf("joining again after leaving: %v", again)
	}
	do(t, alice, "channel ban", map[string]any{"conversation": "#news", "agents": []string{"bob"}})
	if f := explained(t, bob, "channel join", map[string]any{"conversation": "#news"}); f.Code != "banned" || f.Paid != 1000 {
		t.Errorf("joining after a ban: %s, %d", f.Code, f.Paid)
	}
	// Who was removed is told so by a refusal, and asks again.
	do(t, alice, "group add", map[string]any{"conversation": group, "agents": []string{"bob"}})
	do(t, bob, "send", map[string]any{"to": group, "text": "hello"})
	do(t, alice, "group remove", map[string]any{"conversation": group, "agents": []string{"bob"}})
	if f := explained(t, bob, "send", map[string]any{"to": group, "text": "hello"}); f.Code != "not_member" {
		t.Errorf("a message of who was removed: %s", f.Code)
	}
	if again := do(t, bob, "group join", map[string]any{"conversation": group}).Data; again["already"] != nil {
		t.Errorf("a request of who was removed: %v", again)
	}
	// What is final or dear must be confirmed in any call, and so must the successor of who leaves.
	me, team := do(t, bob, "profile show", nil).Data["agent_id"], fmt.Sprintf("team (%s)", group)
	do(t, alice, "group add", map[string]any{"conversation": group, "agents": []string{"bob"}})
	raw := func(operation string, arguments map[string]any) map[string]any {
		return map[string]any{"operation": operation, "arguments": arguments}
	}
	for _, one := range []struct {
		name      string
		arguments map[string]any
		question  string
	}{
		{"call", raw("deleteGroupChat", map[string]any{"chat_id": group}), "Delete " + team + " for everybody? This is final."},
		{"call", raw("transferGroupChat", map[string]any{"chat_id": group, "new_admin_agent_id": me}),
			fmt.Sprintf("Make bob (%s) the admin of %s? This is final.", me, team)},
		{"call", raw("createGroupChat", map[string]any{"name": "x"}), "Create a group chat (name: x) for 0.15 USD?"},
		{"group leave", map[string]any{"conversation": group, "successor": "bob"},
			fmt.Sprintf("Make bob (%s) the admin of %s, and leave it? This is final.", me, team)},
	} {
		if f := explained(t, alice, one.name, one.arguments); f.Question != one.question || f.Code != "confirmation_needed" {
			t.Errorf("%s %v asks %q, want %q", one.name, one.arguments, f.Question, one.question)
		}
	}
}

// TestRefusedBeforeItIsPaid: what is no emoji, no UTF-8 or no regular expression reserves nothing.
func TestRefusedBeforeItIsPaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	before := spent(t, alice)
	const message = "msg_01k70t94aqeembse7n65ptksh0"
	for name, arguments := range map[string]map[string]any{
		"react": {"message_id": message, "emoji": "ok"}, "send": {"to": "bob", "text": "x", "reply_to": "y"},
		"read":         {"conversation": "bob", "grep": "("},
		"profile edit": {"description": "caf\xe9"}, "find": {"words": "x", "n": "many"}, "group add": {"conversation": "x",
			"agents": []string{"\xff"}}, "group create": {"name": "a\nb", "members": []string{"bob"}}, "channel create": {"name": "#news"},
		"channel edit": {"conversation": "#x", "name": "a\u202eb"}, "group edit": {"conversation": "x", "description": " \t"},
	} {
		_, err := try(t, alice, name, arguments)
		if agent.CodeOf(err) != "usage" || spent(t, alice) != before {
			t.Errorf("%s: %v; %d is reserved", name, err, spent(t, alice)-before)
		}
	}
}

// TestPausesDoNotDependOnSenders: after messages there is no pause, however many came before; without messages pauses grow to the longest.
func TestPausesDoNotDependOnSenders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	me := field(t, call(t, bob, "getOwnAgent", nil), "agent_id")
	policy := agent.DefaultPolling // with its pauses the test would not end
	got, came := 0, make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- bob.Follow(t.Context(), policy, func(page *agent.Page) error {
			got += len(page.Messages)
			came <- struct{}{}
			if got == 8 {
				return errors.New("enough")
			}
			return nil
		})
	}()
	began := time.Now()
	for range 8 { // of one sender
		call(t, alice, "sendPrivateMessage", map[string]any{"recipient_agent_id": me, "content": "hello"})
		<-came
	}
	if err := <-done; err == nil || err.Error() != "enough" || time.Since(began) > policy.First {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}
