package service

import (
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

// TestSearchAgents: a page of a directory costs its price, and a search for nothing costs nothing. The store's tests have the rules.
func TestSearchAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	for a, description := range map[*agent]string{alice: "Weather for Lisbon", bob: "100% WEATHER 🌧️"} {
		a.must("/agent/edit", fields{"description": description})
	}
	revenue, size, second := w.Revenue(), int64(1), int64(2)
	found, err := alice.SearchAgentsWithResponse(t.Context(), client.SearchAgentsRequest{Query: "weather", PageSize: &size, Page: &second})
	testkit.Require200(t, "alice searches", found, err)
	want := &client.AgentSearchPage{Count: 1, Page: 2, Agents: []client.AgentSearchItem{
		{AgentID: alice.ID, Username: "alice", Description: "Weather for Lisbon"},
	}}
	if diff := cmp.Diff(want, found.JSON200); diff != "" || w.Revenue() != revenue+5_000 {
		t.Errorf("the second page for %d (-want +got):\n%s", w.Revenue()-revenue, diff)
	}
	for _, path := range []string{"/search/agents", "/search/groups", "/search/channels"} {
		for _, query := range []string{" ", "\t\u3000\n", "\u200b", "\u3164 !"} {
			alice.ask(path, fields{"query": query}).WantRefused(t, path+" for nothing", 400, "invalid_request")
		}
		w.call(http.MethodPost, path, `{"query":"x","page_size":101}`).Want(t, path+" with a page of 101", 400)
	}
}

// TestInvisibleCharactersInQueries: what was pasted into a query to a directory and is not seen does not count.
func TestInvisibleCharactersInQueries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	alice.must("/agent/edit", fields{"description": "Weather for Lisbon, می\u200cخواهم, 👩‍🚀"})
	alice.must("/chat/group/create", fields{"name": "Lisbon می\u200cخواهم 👩‍🚀", "is_discoverable": true})
	alice.must("/channel/create", fields{"name": "Lisbon می\u200cخواهم 👩‍🚀", "is_discoverable": true})
	for _, query := range []string{"lisbon", "lisbon\u200b", "\ufeff\"Lis\u00adbon\u202c\"", "\u2066lisbon!\u2069", "می\u200cخواهم", "👩‍🚀"} {
		for _, path := range []string{"/search/agents", "/search/groups", "/search/channels"} {
			if found := alice.must(path, fields{"query": query}); !strings.Contains(string(found.Body), `"count":1,`) {
				t.Errorf("%s for %+q: %s, want one", path, query, found.Body)
			}
		}
	}
}

// TestSearchPrivateMessages: what a search of messages returns and refuses. The store's tests have the expressions.
func TestSearchPrivateMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	chat, first := alice.send(bob, "Will it rain in Lisbon tomorrow?")
	_, second := bob.send(alice, "No: sun in LISBON, 24 degrees (and 12 in Porto")
	_, third := alice.send(bob, "A ticket is $5 (50%) now")
	_, elsewhere := carol.send(bob, "Lisbon is not in this chat")
	message := client.Message{MessageID: first, SenderID: alice.ID, SenderUsername: "alice", Content: "Will it rain in Lisbon tomorrow?",
		ContentType: "text/plain", Reactions: []client.Reaction{}, ReactionCounts: map[string]int64{}}
	priced := message
	priced.MessageID, priced.Content = third, "A ticket is $5 (50%) now"
	for _, test := range []struct {
		request client.SearchPrivateMessagesRequest
		want    client.MessageSearchPage
	}{
		{client.SearchPrivateMessagesRequest{Query: "^will.*\\?$"},
			client.MessageSearchPage{Count: 1, Page: 1, MatchedAs: client.MatchedAsRegex, Messages: []client.Message{message}}},
		{client.SearchPrivateMessagesRequest{Query: "lisbon", BeforeMessageID: &second},
			client.MessageSearchPage{Count: 1, Page: 1, MatchedAs: client.MatchedAsRegex, Messages: []client.Message{message}}},
		{client.SearchPrivateMessagesRequest{Query: "(snow", Page: new(int64(2))},
			client.MessageSearchPage{Page: 2, MatchedAs: client.MatchedAsLiteral, Messages: []client.Message{}}},
		{client.SearchPrivateMessagesRequest{Query: "$5 (50%)", Literal: new(true)},
			client.MessageSearchPage{Count: 1, Page: 1, MatchedAs: client.MatchedAsLiteral, Messages: []client.Message{priced}}},
		{client.SearchPrivateMessagesRequest{Query: "$5 (50%)", Literal: new(false)},
			client.MessageSearchPage{Page: 1, MatchedAs: client.MatchedAsRegex, Messages: []client.Message{}, Hint: new("the query was matched " +
				"as a regular expression; `$`, `(`, `)` have a special meaning there; send literal: true to search for the text as it is")}},
		{client.SearchPrivateMessagesRequest{Query: "(a?){999}(a?){999}", Literal: new(true)},
			client.MessageSearchPage{Page: 1, MatchedAs: client.MatchedAsLiteral, Messages: []client.Message{}}},
	} {
		test.request.ChatID = chat
		found, err := bob.SearchPrivateMessagesWithResponse(t.Context(), test.request)
		testkit.Require200(t, "bob searches", found, err)
		if diff := cmp.Diff(&test.want, found.JSON200, cmpopts.IgnoreFields(client.Message{}, "CreatedAt")); diff != "" {
			t.Errorf("looking for %q (-want +got):\n%s", test.request.Query, diff)
		}
	}
	if read := w.Count("SELECT max(read_number) FROM memberships WHERE agent_id = " + uuidOf("bob")); read != 0 {
		t.Errorf("searching moved bob's marker to %d", read)
	}
	const path = "/chat/private/search"
	bob.ask(path, fields{"chat_id": chat, "query": "x", "before_message_id": elsewhere}).
		WantRefused(t, "an anchor in another chat", 404, "message_not_found")
	for _, query := range []string{"(a?){999}(a?){999}", "(a{500}){500}", "...", strings.Repeat("x", 257)} {
		bob.ask(path, fields{"chat_id": chat, "query": query}).WantRefused(t, "looking for "+query, 400, "invalid_request")
	}
}

// TestSearchHint: a search that was matched as an expression, has characters of expressions in it and finds nothing says so.
func TestSearchHint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	chat, message := alice.send(bob, "A ticket is $5 (50%) now")
	group, channel := alice.createGroup("planners", bob), alice.channel("news")
	alice.sendGroup(group, "A ticket is $5 (50%) now")
	for path, place := range map[string]fields{
		"/chat/private/search": {"chat_id": chat}, "/chat/group/search": {"chat_id": group}, "/channel/search": {"channel_id": channel},
	} {
		for query, special := range map[string]string{
			"$5 (50%)": "`$`, `(`, `)` have a special meaning there", "where^?^": "`^`, `?` have a special meaning there",
			`\d{9}`: "`\\`, `{`, `}` have a special meaning there", "nowhere.": "`.` has a special meaning there", "nowhere": "", "(nowhere": "",
		} {
			place["query"] = query
			if special != "" {
				special = "the query was matched as a regular expression; " + special + "; send literal: true to search for the text as it is"
			}
			if got := alice.must(path, place).Text("hint"); got != special {
				t.Errorf("the hint of %s for %s is %q, want %q", path, query, got, special)
			}
		}
	}
	for what, body := range map[string]fields{
		"a match": {"query": "ticket.*now"}, "literal text": {"query": "$6", "literal": true},
		"a page after the first": {"query": "$5 (50%)", "page": 2},
		"older messages":         {"query": "$5 (50%)", "before_message_id": message},
	} {
		body["chat_id"] = chat
		if got := bob.must("/chat/private/search", body).Text("hint"); got != "" {
			t.Errorf("%s has the hint %q", what, got)
		}
	}
}
