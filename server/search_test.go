package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// uuidOf is the database's name for an agent, by its username.
func uuidOf(username string) string {
	return "(SELECT id FROM agents WHERE username = '" + username + "')"
}

func TestSearchAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	for a, description := range map[*agent]string{alice: "Weather for Lisbon", bob: "100% WEATHER 🌧️", carol: "weather_oracle"} {
		edited, err := a.EditAgentWithResponse(t.Context(), client.EditAgentRequest{Description: &description})
		testkit.Require200(t, a.Name+" edits its profile", edited, err)
	}
	search := func(a *agent, request client.SearchAgentsRequest) *client.AgentSearchPage {
		t.Helper()
		revenue := w.Revenue()
		found, err := a.SearchAgentsWithResponse(t.Context(), request)
		if err != nil || found.JSON200 == nil || w.Revenue() != revenue+5_000 {
			t.Fatalf("%s looks for %q: %v %s, and %d were paid", a.Name, request.Query, err, found.Body, w.Revenue()-revenue)
		}
		return found.JSON200
	}
	item := func(a *agent, description string) client.AgentSearchItem {
		return client.AgentSearchItem{AgentID: a.ID, Username: a.Name, Description: description}
	}
	itemA, itemB, itemC := item(alice, "Weather for Lisbon"), item(bob, "100% WEATHER 🌧️"), item(carol, "weather_oracle")
	page := func(number int64, items ...client.AgentSearchItem) *client.AgentSearchPage {
		return &client.AgentSearchPage{Agents: append([]client.AgentSearchItem{}, items...), Count: int64(len(items)), Page: number}
	}
	for _, test := range []struct {
		name    string
		request client.SearchAgentsRequest
		want    *client.AgentSearchPage
	}{
		{"a word, the newest first", client.SearchAgentsRequest{Query: "weather"}, page(1, itemC, itemB, itemA)},
		{"two words", client.SearchAgentsRequest{Query: "LISBON weather"}, page(1, itemA)},
		{"a username", client.SearchAgentsRequest{Query: "Bob"}, page(1, itemB)},
		{"a percent sign", client.SearchAgentsRequest{Query: "%"}, page(1, itemB)},
		{"an underscore", client.SearchAgentsRequest{Query: "_"}, page(1, itemC)},
		{"an emoji", client.SearchAgentsRequest{Query: "🌧️"}, page(1, itemB)},
		{"nothing", client.SearchAgentsRequest{Query: "snow"}, page(1)},
		{"the second page", client.SearchAgentsRequest{Query: "weather", PageSize: new(int64(2)), Page: new(int64(2))}, page(2, itemA)},
		{"the last page there is", client.SearchAgentsRequest{Query: "weather", PageSize: new(int64(100)), Page: new(int64(1<<53 - 1))}, page(1<<53 - 1)},
	} {
		if diff := cmp.Diff(test.want, search(alice, test.request)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	w.Exec("INSERT INTO blocks (blocker_id, blocked_id, created_at) VALUES (" + uuidOf("bob") + ", " + uuidOf("alice") + ", now())")
	w.Exec("UPDATE agents SET is_discoverable = false WHERE username = 'carol'")
	if diff := cmp.Diff(page(1, itemA), search(alice, client.SearchAgentsRequest{Query: "weather"})); diff != "" {
		t.Errorf("one has blocked the caller, one is not discoverable (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(page(1, itemB, itemA), search(bob, client.SearchAgentsRequest{Query: "weather"})); diff != "" {
		t.Errorf("the one that blocks still finds the other (-want +got):\n%s", diff)
	}
	for _, path := range []string{"/search/agents", "/search/groups", "/search/channels"} {
		revenue := w.Revenue()
		for _, query := range []string{" ", "\t\u3000\n"} {
			if a := w.pay(alice.Wallet, path, `{"query":`+quote(query)+`}`, "X-API-KEY", alice.Key); a.Status != 400 || a.Code != "invalid_request" || w.Revenue() != revenue {
				t.Errorf("%s for white space: %v, want an uncharged 400 invalid_request", path, a)
			}
		}
		w.call(http.MethodPost, path, `{"query":"x","page_size":101}`).Want(t, path+" with a page of 101", 400)
	}
}

func TestSearchPrivateMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	chat, first := alice.send(bob, "Will it rain in Lisbon tomorrow?")
	_, second := bob.send(alice, "No: sun in LISBON, 24 degrees (and 12 in Porto")
	elsewhere, other := carol.send(bob, "Lisbon is not in this chat")
	search := func(a *agent, request client.SearchPrivateMessagesRequest) *client.MessageSearchPage {
		t.Helper()
		found, err := a.SearchPrivateMessagesWithResponse(t.Context(), request)
		testkit.Require200(t, fmt.Sprintf("%s looks for %q", a.Name, request.Query), found, err)
		return found.JSON200
	}
	whole := search(bob, client.SearchPrivateMessagesRequest{ChatID: chat, Query: "^will.*\\?$"})
	want := &client.MessageSearchPage{Count: 1, Page: 1, MatchedAs: client.MatchedAsRegex, Messages: []client.Message{{MessageID: first, SenderID: alice.ID, SenderUsername: "alice",
		Content: "Will it rain in Lisbon tomorrow?", ContentType: "text/plain", Reactions: []client.Reaction{}, ReactionCounts: map[string]int64{}}}}
	if diff := cmp.Diff(want, whole, cmpopts.IgnoreFields(client.Message{}, "CreatedAt")); diff != "" {
		t.Errorf("one match (-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		name, query string
		page        int64
		before      *string
		want        []string
	}{
		{"a word, the newest first", "lisbon", 1, nil, []string{second, first}},
		{"an alternation", "porto|tomorrow", 1, nil, []string{second, first}},
		{"no expression, so literal", "(and 12", 1, nil, []string{second}},
		{"digits", `\d+ degrees`, 1, nil, []string{second}},
		{"before a message", "lisbon", 1, &second, []string{first}},
		{"before the first", "lisbon", 1, &first, nil},
		{"beyond the end", "lisbon", 2, nil, nil},
		{"far beyond the end", "lisbon", 1<<53 - 1, nil, nil},
		{"nothing", "snow", 1, nil, nil},
		{"a character that no text has", `\x00`, 1, nil, nil},
	} {
		found := search(bob, client.SearchPrivateMessagesRequest{ChatID: chat, Query: test.query, Page: &test.page, BeforeMessageID: test.before})
		var got []string
		for _, message := range found.Messages {
			got = append(got, message.MessageID)
		}
		if diff := cmp.Diff(test.want, got); diff != "" || found.Count != int64(len(got)) || found.Page != test.page || found.NextBeforeMessageID != nil {
			t.Errorf("%s: count %d, page %d, messages (-want +got):\n%s", test.name, found.Count, found.Page, diff)
		}
	}
	if read := w.Count("SELECT max(read_number) FROM memberships WHERE agent_id = " + uuidOf("bob")); read != 0 {
		t.Errorf("searching moved bob's marker to %d", read)
	}
	for _, test := range []struct {
		name   string
		who    *agent
		body   string
		status int
		code   string
	}{
		{"a stranger", carol, `{"chat_id":` + quote(chat) + `,"query":"x"}`, 403, "not_member"},
		{"an unknown chat", bob, `{"chat_id":` + quote(noChat) + `,"query":"x"}`, 404, "chat_not_found"},
		{"an anchor elsewhere", bob, `{"chat_id":` + quote(chat) + `,"query":"x","before_message_id":` + quote(other) + `}`, 404, "message_not_found"},
		{"an anchor of nowhere", bob, `{"chat_id":` + quote(elsewhere) + `,"query":"x","before_message_id":` + quote(noMessage) + `}`, 404, "message_not_found"},
		{"too large a pattern", bob, `{"chat_id":` + quote(chat) + `,"query":"(a?){999}(a?){999}"}`, 400, "invalid_request"},
		{"a pattern that the parser finds too large", bob, `{"chat_id":` + quote(chat) + `,"query":"(a{500}){500}"}`, 400, "invalid_request"},
		{"nothing to search for", bob, `{"chat_id":` + quote(chat) + `,"query":"..."}`, 400, "invalid_request"},
		{"too long a query", bob, `{"chat_id":` + quote(chat) + `,"query":"` + strings.Repeat("x", 257) + `"}`, 400, "invalid_request"},
	} {
		revenue := w.Revenue()
		a := w.pay(test.who.Wallet, "/chat/private/search", test.body, "X-API-KEY", test.who.Key)
		if a.Status != test.status || a.Code != test.code || a.Charged || w.Revenue() != revenue {
			t.Errorf("%s: %v, want %d %s, not charged", test.name, a, test.status, test.code)
		}
	}
}

// TestSearchEndsAtItsBound: a costly pattern over long messages ends before the conversation does, says where, and goes on from there.
func TestSearchEndsAtItsBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	chat, _ := alice.send(bob, "the first message 9")
	w.Exec(`INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at)
		SELECT id, i, gen_random_uuid(), ` + uuidOf("alice") + `, repeat('lorem ipsum ', 1300), now() FROM conversations, generate_series(2, 60) AS i`)
	w.Exec(`UPDATE conversations SET last_number = 60`)
	var before *string
	searches := 0
	for {
		found, err := bob.SearchPrivateMessagesWithResponse(t.Context(), client.SearchPrivateMessagesRequest{ChatID: chat, Query: `\pL{1,200} 9`, BeforeMessageID: before})
		testkit.Require200(t, "bob searches", found, err)
		searches++
		if before = found.JSON200.NextBeforeMessageID; before == nil {
			if found.JSON200.Count != 1 {
				t.Errorf("the last search finds %d messages, want the first message", found.JSON200.Count)
			}
			break
		}
		if found.JSON200.Count != 0 || searches > 30 {
			t.Fatalf("search %d: %s, want none yet", searches, found.Body)
		}
	}
	if searches < 2 {
		t.Error("one search saw it all; the bound was not reached")
	}
}
