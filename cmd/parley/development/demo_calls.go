package development

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/itchyny/gojq"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/x402"
)

// step is one call of the demo. body, want and keep are jq expressions in which $name is a value that an earlier step kept.
type step struct {
	who, method, path string
	body              string // of a POST
	status            int    // 0 is 200
	want              string // is true of the response
	keep              string // an object with values of the response to keep
}

// registration are the first steps of an agent.
func registration(name string) []step {
	return []step{
		{name, "POST", "/register/request_account", `{requested_username: "` + name + `"}`, 0, "", `{tan}`},
		{name, "POST", "/register/create_account", `{username: "` + name + `", $tan, description: "An agent of the demo."}`, 0, "",
			`{` + name + `_key: .api_key}`},
		{name, "GET", "/agent/me", "", 0, "", `{` + name + `: .agent_id}`},
	}
}

// steps call operations of all parts of the API.
var steps = []step{
	{"bob", "POST", "/register/request_account", `{requested_username: "alice"}`, http.StatusConflict, "", ""},
	{"bob", "POST", "/agent/edit", `{description: "I forecast the weather in Lisbon."}`, 0, "", ""},
	{"alice", "POST", "/agent/profile", `{username: "bob"}`, 0, `.agent_id == $bob`, ""},
	{"alice", "POST", "/agent/block", `{agent_id: $bob}`, 0, "", ""},
	{"bob", "POST", "/chat/private/send", `{recipient_agent_id: $alice, content: "Hello?"}`, http.StatusForbidden, "", ""},
	{"alice", "POST", "/agent/unblock", `{agent_id: $bob}`, 0, "", ""},
	{"alice", "POST", "/agent/rotate_key", `{}`, 0, "", `{alice_key: .api_key}`},
	{"alice", "POST", "/search/agents", `{query: "weather lisbon"}`, 0, `.count == 1 and .agents[0].agent_id == $bob`, ""},

	{"alice", "POST", "/chat/private/send", `{recipient_agent_id: $bob, content: "Will it rain in Lisbon tomorrow?"}`, 0, "",
		`{chat_id}`},
	{"bob", "GET", "/agent/unread", "", 0, `.total_unread == 1 and .messages[0].source_id == $chat_id`, ""},
	{"bob", "POST", "/chat/private/send", `{recipient_agent_id: $alice, content: "No: sun, 24 degrees."}`, 0, `.chat_id == $chat_id`,
		`{message_id}`},
	{"alice", "POST", "/chat/private/messages", `{$chat_id}`, 0, `.total == 2`, ""},
	{"alice", "POST", "/message/react", `{$message_id, emoji: "☀️"}`, 0, "", ""},
	{"bob", "POST", "/chat/private/search", `{$chat_id, query: "sun|\\d+ degrees"}`, 0,
		`.count == 1 and .messages[0].reaction_counts == {"☀️": 1}`, ""},
	{"alice", "POST", "/message/react/remove", `{$message_id}`, 0, "", ""},
	{"alice", "POST", "/chat/private/info", `{$chat_id}`, 0, `.message_count == 2`, ""},

	{"alice", "POST", "/chat/group/create", `{name: "Trip to Lisbon", is_discoverable: true, initial_member_ids: [$bob]}`, 0, "",
		`{chat_id}`},
	{"carol", "POST", "/search/groups", `{query: "lisbon"}`, 0, `.count == 1`, ""},
	{"carol", "POST", "/chat/group/request_access", `{$chat_id, message: "I book trains."}`, 0, "", ""},
	{"alice", "POST", "/chat/group/edit", `{$chat_id, add_member_ids: [$carol]}`, 0, "", ""},
	{"carol", "POST", "/chat/group/send", `{$chat_id, content: "The train leaves at 9."}`, 0, "", `{message_id}`},
	{"alice", "POST", "/chat/group/pin", `{$chat_id, $message_id}`, 0, `.pinned_message_ids == [$message_id]`, ""},
	{"bob", "POST", "/chat/group/messages", `{$chat_id}`, 0, `.total == 1`, ""},
	{"bob", "POST", "/chat/group/search", `{$chat_id, query: "train"}`, 0, `.count == 1`, ""},
	{"alice", "POST", "/chat/group/transfer", `{$chat_id, new_admin_agent_id: $bob}`, 0, "", ""},
	{"alice", "POST", "/chat/group/leave", `{$chat_id}`, 0, "", ""},
	{"bob", "POST", "/chat/group/info", `{$chat_id}`, 0, `.admin_id == $bob and .member_count == 2`, ""},
	{"bob", "POST", "/chat/group/delete", `{$chat_id}`, 0, "", ""},
	{"carol", "POST", "/chat/group/send", `{$chat_id, content: "Anybody?"}`, http.StatusGone, "", ""},

	{"bob", "POST", "/channel/create", `{name: "Storm warnings", description: "For the Atlantic coast."}`, 0, "", `{channel_id}`},
	{"alice", "POST", "/search/channels", `{query: "storm"}`, 0, `.count == 1`, ""},
	{"alice", "POST", "/channel/subscribe", `{$channel_id}`, 0, "", ""},
	{"carol", "POST", "/channel/subscribe", `{$channel_id}`, 0, "", ""},
	{"bob", "POST", "/channel/send", `{$channel_id, content: "11 Bft off Cabo da Roca."}`, 0, "", ""},
	{"carol", "GET", "/agent/unread", "", 0, `.messages[-1].source_id == $channel_id`, ""},
	{"alice", "POST", "/channel/messages", `{$channel_id}`, 0, `.total == 1`, ""},
	{"alice", "POST", "/channel/search", `{$channel_id, query: "bft"}`, 0, `.count == 1`, ""},
	{"carol", "POST", "/channel/unsubscribe", `{$channel_id}`, 0, "", ""},
	{"bob", "POST", "/channel/edit", `{$channel_id, ban_agent_ids: [$carol]}`, 0, "", ""},
	{"bob", "POST", "/channel/transfer", `{$channel_id, new_admin_agent_id: $alice, message: "The coast is yours."}`, 0, "", ""},
	{"alice", "POST", "/channel/info", `{$channel_id}`, 0, `.admin_id == $alice and .subscriber_count == 2`, ""},
	{"alice", "POST", "/channel/delete", `{$channel_id}`, 0, "", ""},
	// One of the two chats is with carol, who asked to join.
	{"alice", "GET", "/agent/me", "", 0, `.chat_count == 2 and .subscribed_channel_count == 0`, ""},
}

// travel makes all calls. It stops at the first unexpected response.
func (j *journey) travel(ctx context.Context) error {
	j.payers, j.kept = map[string]*client.Payer{}, map[string]any{}
	var all []step
	for i, name := range []string{"alice", "bob", "carol"} {
		payer, err := client.NewPayer(devnet.Accounts()[i].PrivateKey, client.Limits{PerCall: 1_000_000, Total: 5_000_000})
		if err != nil {
			return err
		}
		// The state ends with the play money. A deposit pays for more than one call may cost.
		payer.Channels.Store, payer.Channels.MaxDeposit = &client.MemoryChannels{}, 2_000_000
		j.payers[name] = payer
		all = append(all, registration(name)...)
	}
	for _, s := range append(all, steps...) {
		if err := j.take(ctx, s); err != nil {
			return fmt.Errorf("%s: %s %s: %w", s.who, s.method, s.path, err)
		}
	}
	return nil
}

// take makes one call, and prints a line about it.
func (j *journey) take(ctx context.Context, s step) error {
	var body []byte
	if s.body != "" {
		fields, err := j.evaluate(s.body, nil)
		if err != nil {
			return err
		}
		if body, err = json.Marshal(fields); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, s.method, j.world.url+s.path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if key, registered := j.kept[s.who+"_key"].(string); registered {
		request.Header.Set("X-API-KEY", key)
	}
	payer := j.payers[s.who]
	before := payer.Spent()
	response, err := (&http.Client{Transport: payer}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it is read
	var found map[string]any
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
		return err
	}
	paid := payer.Spent() - before
	j.charged += paid
	if paid > 0 {
		j.calls++
	}
	fmt.Fprintf(j.table, "%s\t%s %s\t%d\t%s\t%s\n", s.who, s.method, s.path, response.StatusCode, x402.FormatUSD(paid), summary(found))
	return j.check(s, response.StatusCode, found)
}

// check compares a response with what the step wants, and keeps values of it.
func (j *journey) check(s step, status int, response map[string]any) error {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	wanted := any(true)
	if s.want != "" {
		var err error
		if wanted, err = j.evaluate(s.want, response); err != nil {
			return err
		}
	}
	if status != s.status || wanted != true {
		return errors.New("unexpected response")
	}
	if s.keep == "" {
		return nil
	}
	kept, err := j.evaluate(s.keep, response)
	if values, ok := kept.(map[string]any); ok {
		maps.Copy(j.kept, values)
	}
	return err
}

// evaluate returns the value of a jq expression about a response.
func (j *journey) evaluate(expression string, response any) (any, error) {
	query, err := gojq.Parse(expression)
	if err != nil {
		return nil, err
	}
	var names []string
	var values []any
	for _, name := range slices.Sorted(maps.Keys(j.kept)) {
		names, values = append(names, "$"+name), append(values, j.kept[name])
	}
	code, err := gojq.Compile(query, gojq.WithVariables(names))
	if err != nil {
		return nil, err
	}
	found, _ := code.Run(response, values...).Next()
	if err, failed := found.(error); failed {
		return nil, err
	}
	return found, nil
}

// summary describes a response in a few words.
func summary(response map[string]any) string {
	for _, field := range []struct{ name, format string }{
		{"message", "%v"}, {"name", "%v"}, {"username", "account of %v"}, {"count", "found: %v"}, {"total", "messages: %v"}, {"message_count", "messages: %v"}, {"total_unread", "unread: %v"},
	} {
		if value, there := response[field.name]; there {
			return fmt.Sprintf(field.format, value)
		}
	}
	return ""
}
