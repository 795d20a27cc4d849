package service

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/x402"
)

// story plays the contract's examples on a real server. What a server makes up (ids, TANs, keys) is another thing each
// time, but the same thing throughout the examples: so an id that stands for a message in one of them must not stand
// for another message elsewhere.
type story struct {
	t            *testing.T
	w            *world
	real         map[string]string // what stands in the examples -> what it is here
	inTheExample map[string]string // and back
	told         map[string]bool   // operationIds
	requests     [][]byte          // what was sent, in canonical form
}

// calls are the names that the examples give to what the test made.
func (s *story) calls(example, real string) {
	s.real[example], s.inTheExample[real] = real, example
}

// madeUp is what a server makes up.
var madeUp = regexp.MustCompile(`^(agent|chat|channel|msg)_[0-9a-z]{26}$|^(parley)_[0-9A-Za-z]{49}$|^(req)_[0-9a-f]{16}$|^[0-9A-Z]{8}$`)

// translate puts the examples' words for what the server made up into its reply, and the examples' times.
func (s *story) translate(example, real any, name string) any {
	switch real := real.(type) {
	case map[string]any:
		fields, _ := example.(map[string]any)
		for key, value := range real {
			real[key] = s.translate(fields[key], value, key)
		}
	case []any:
		list, _ := example.([]any)
		for i, value := range real {
			if i < len(list) {
				real[i] = s.translate(list[i], value, name)
			} else {
				real[i] = s.translate(nil, value, name)
			}
		}
	case string:
		word, _ := example.(string)
		if known, ok := s.inTheExample[real]; ok {
			return known
		}
		if name == "cursor" && strings.HasPrefix(real, "c1") { // names what the page has, with ids and a checksum
			return example
		}
		has, wants := madeUp.FindStringSubmatch(real), madeUp.FindStringSubmatch(word)
		if has == nil || wants == nil || cmp.Diff(has[1:], wants[1:]) != "" || s.real[word] != "" {
			return real
		}
		if name != "request_id" { // each call has another, and the examples have one
			s.calls(word, real)
		}
		return word
	case float64:
		if _, ok := example.(float64); ok && (strings.HasSuffix(name, "_at") || name == "timestamp") {
			return example
		}
	}
	return real
}

// holds compares a reply with the contract's example of it.
func (s *story) holds(name string, operation *openapi3.Operation, a testkit.Reply) {
	s.t.Helper()
	example := operation.Responses.Value(fmt.Sprint(a.Status)).Value.Content["application/json"].Example
	var real any
	if err := json.Unmarshal(a.Body, &real); err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	if diff := cmp.Diff(example, s.translate(example, real, "")); diff != "" {
		s.t.Errorf("%s: the example is not what a server replies (-example +reply):\n%s", name, diff)
	}
}

// sent records a request in the form that the server binds its payment to.
func (s *story) sent(path, body string) {
	s.t.Helper()
	if body == "" {
		_, query, _ := strings.Cut(path, "?")
		values, err := url.ParseQuery(query)
		testkit.NoError(s.t, err)
		values.Del("wait") // its default is left out
		s.requests = append(s.requests, []byte(values.Encode()))
		return
	}
	value := map[string]any{}
	content := testkit.Operations["POST "+path].Operation.RequestBody.Value.Content["application/json"]
	for name, property := range content.Schema.Value.Properties {
		if property.Value.Default != nil {
			value[name] = property.Value.Default
		}
	}
	err := json.Unmarshal([]byte(body), &value)
	canonical, failed := json.Marshal(value)
	if err != nil || failed != nil {
		s.t.Fatal(err, failed)
	}
	s.requests = append(s.requests, canonical)
}

// tell sends the example of an operation's request and holds the reply against the example of its response.
func (s *story) tell(who *agent, operationID string) {
	s.t.Helper()
	s.told[operationID] = true
	for _, route := range testkit.Operations {
		if route.Operation.OperationID != operationID {
			continue
		}
		path, body := route.Path, ""
		for i, parameter := range route.Operation.Parameters {
			path += fmt.Sprintf("%c%s=%v", "?&"[min(i, 1)], parameter.Value.Name, parameter.Value.Example)
		}
		if route.Operation.RequestBody != nil {
			raw, err := json.Marshal(route.Operation.RequestBody.Value.Content["application/json"].Example)
			testkit.NoError(s.t, err)
			var pairs []string
			for example, real := range s.real {
				pairs = append(pairs, example, real)
			}
			body = strings.NewReplacer(pairs...).Replace(string(raw))
		}
		var headers []string
		if route.Operation.Extensions["x-payment-info"] != nil {
			headers = append(headers, "X-API-KEY", who.Key, x402.HeaderPaymentSignature, s.w.signFor(who.Wallet, route.Method, route.Path))
		}
		s.sent(path, body)
		a := s.w.call(route.Method, path, body, headers...)
		a.Require(s.t, fmt.Sprintf("the example of %s is refused", operationID), 200)
		if key := a.Text("api_key"); key != "" {
			who.Key = key
			s.w.Secret(key)
		}
		s.holds(operationID, route.Operation, a)
		return
	}
	s.t.Fatalf("the contract has no %s", operationID)
}

// TestExamples: what the contract shows is what happens. Each operation's example is sent, in an order in which the
// examples make one story, and replied with its example, but for times and what the server makes up.
func TestExamples(t *testing.T) {
	t.Parallel()
	tellAll(t)
}

// tellAll plays the examples of all operations.
func tellAll(t *testing.T) *story {
	t.Helper()
	w := newWorld(t)
	s := &story{t: t, w: w, real: map[string]string{}, inTheExample: map[string]string{}, told: map[string]bool{}}
	oracle := &agent{&testkit.Agent{Name: "weather_oracle", Wallet: w.Wallet(1000 * testkit.Dollar)}, w}
	s.tell(oracle, "requestAccount")
	s.tell(oracle, "createAccount")
	guide, booker, finder := w.agent("city_guide"), w.agent("train_booker"), w.agent("hotel_finder")
	guide.must("/agent/edit", fields{"description": "I know every museum in Lisbon."})
	finder.must("/agent/edit", fields{"description": "I find quiet hotels."})
	s.calls("agent_01k70t995eeeqsqssjfq4h8qx8", guide.ID)
	s.calls("agent_01k70t9e05eevbp5bfs8j7xp9g", booker.ID)
	s.calls("agent_01k70t9jtweeysmgxd2szyjmnr", finder.ID)

	s.tell(oracle, "getAgentProfile")
	s.tell(oracle, "searchAgents")
	oracle.ID = w.pay(guide.Wallet, "/agent/profile", `{"username":"weather_oracle"}`, "X-API-KEY", guide.Key).Field(t, "agent_id")
	guide.send(oracle, "Will it rain in Lisbon tomorrow?")
	locals := guide.createGroup("Lisbon locals", oracle)
	s.calls("chat_01k70tb1wse5m8h3v6xq0yd7rn", locals)
	s.tell(oracle, "listUnreadMessages")
	guide.groupMust("delete", locals)
	s.tell(oracle, "reactToMessage")
	s.tell(oracle, "listPrivateMessages")
	s.tell(oracle, "searchPrivateMessages")
	s.tell(oracle, "sendPrivateMessage")
	s.tell(oracle, "getPrivateChat")
	s.tell(oracle, "removeReaction")

	s.tell(oracle, "createGroupChat")
	s.tell(oracle, "searchGroups")
	s.tell(oracle, "sendGroupMessage")
	guide.react(s.real["msg_01k70tcepheh1anchsr54d0nyg"], "👍")
	s.tell(oracle, "listGroupMessages")
	s.tell(guide, "searchGroupMessages")
	s.tell(oracle, "pinGroupMessage")
	s.tell(oracle, "editGroupChat")
	s.tell(oracle, "getGroupChat")

	s.tell(oracle, "createChannel")
	s.tell(guide, "subscribeChannel")
	for _, subscriber := range []*agent{booker, oracle} {
		subscriber.must("/channel/subscribe", fields{"channel_id": s.real["channel_01k70taybbefyb5rymrpvaf640"]})
	}
	s.tell(oracle, "sendChannelMessage")
	s.tell(guide, "listChannelMessages")
	s.tell(booker, "searchChannelMessages")
	s.tell(finder, "searchChannels")
	oracle.must("/channel/edit", fields{"channel_id": s.real["channel_01k70taybbefyb5rymrpvaf640"], "ban_agent_ids": []*agent{finder}})
	oracle.must("/agent/block", fields{"agent_id": finder})
	s.tell(oracle, "getChannel")
	s.tell(oracle, "getOwnAgent")
	s.tell(oracle, "editChannel")
	s.tell(booker, "unsubscribeChannel")
	s.tell(oracle, "transferChannel")
	s.tell(guide, "deleteChannel")

	s.tell(booker, "requestGroupAccess")
	s.tell(oracle, "transferGroupChat")
	guide.must("/chat/group/transfer", fields{"chat_id": s.real["chat_01k70tasgmefts7dcqf5dkt7qr"], "new_admin_agent_id": oracle})
	s.tell(oracle, "leaveGroupChat")
	s.tell(guide, "deleteGroupChat")

	s.tell(oracle, "editAgent")
	s.tell(oracle, "blockAgent")
	s.tell(oracle, "unblockAgent")
	s.tell(oracle, "rotateKey")

	s.told["getHealth"], s.told["getSkill"] = true, true // TestHealthExample, and cmd/parley's TestSkillExample
	for name, route := range testkit.Operations {
		if !s.told[route.Operation.OperationID] {
			t.Errorf("the example of %s is not part of the story", name)
		}
	}
	return s
}

// TestHealthExample: the sentences are those of the example; its numbers are of a busier server.
func TestHealthExample(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	route := testkit.Operations["GET /health"]
	compare := func(a testkit.Reply) {
		t.Helper()
		numbers := regexp.MustCompile(`\b[0-9.]+\b`)
		example, err := json.Marshal(route.Operation.Responses.Value(fmt.Sprint(a.Status)).Value.Content["application/json"].Example)
		testkit.NoError(t, err)
		var want, got map[string]any
		if json.Unmarshal(numbers.ReplaceAll(example, []byte("7")), &want) != nil ||
			json.Unmarshal(numbers.ReplaceAll(a.Body, []byte("7")), &got) != nil {
			t.Fatalf("neither %s nor %s may be anything but an object", example, a.Body)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the example of %d is not what a server replies (-example +reply):\n%s", a.Status, diff)
		}
	}
	compare(w.call(http.MethodGet, "/health", ""))
	w.disconnect()
	compare(w.call(http.MethodGet, "/health", ""))
}

// TestErrorExamples: the errors that the contract shows are those that are replied. Only internal_error is not provoked
// here: it is our fault.
func TestErrorExamples(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	private, _ := alice.send(bob, "hello")
	group := alice.createGroup("the planners")
	alice.must("/chat/group/delete", fields{"chat_id": group})
	const send = "/chat/private/send"
	message := fields{"recipient_agent_id": bob, "content": "hello"}.json(t)
	reused := w.sign(alice.Wallet, send)
	w.call(http.MethodPost, send, message, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, reused).Require(t, "a call", http.StatusOK)
	base, _ := x402.LookupNetwork("eip155:8453")
	forSale := newWorld(t, func(config *server.Config, _ *payment.Chain, _ string) {
		config.BaseURL, config.Network, config.PayTo = "https://parley.example", base, "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	})
	busy := newWorld(t, withLimits(edge.Limits{Address: few(1)}))
	for _, c := range []struct {
		status  int
		path    string
		provoke func() testkit.Reply
	}{
		{400, send, func() testkit.Reply { return alice.ask(send, fields{"recipient_agent_id": bob}) }},
		{401, send, func() testkit.Reply { return w.pay(alice.Wallet, send, message) }},
		{402, send, func() testkit.Reply { return forSale.call(http.MethodPost, send, message) }},
		{403, "/chat/private/info", func() testkit.Reply { return carol.ask("/chat/private/info", fields{"chat_id": private}) }},
		{404, "/agent/block", func() testkit.Reply {
			return alice.ask("/agent/block", fields{"agent_id": "agent_01k70t995eeeqsqssjfq4h8qx8"})
		}},
		{405, send, func() testkit.Reply { return w.call(http.MethodGet, send, "") }},
		{409, send, func() testkit.Reply {
			other := fields{"recipient_agent_id": bob, "content": "goodbye"}.json(t)
			return w.call(http.MethodPost, send, other, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, reused)
		}},
		{410, "/chat/group/info", func() testkit.Reply { return alice.ask("/chat/group/info", fields{"chat_id": group}) }},
		{413, send, func() testkit.Reply {
			return alice.ask(send, fields{"recipient_agent_id": bob, "content": strings.Repeat("a", 300_000)})
		}},
		{415, send, func() testkit.Reply { return w.call(http.MethodPost, send, message, "Content-Type", "text/plain") }},
		{429, send, func() testkit.Reply {
			busy.call(http.MethodPost, send, message)
			return busy.call(http.MethodPost, send, message)
		}},
		{503, send, func() testkit.Reply {
			defer w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool {
				rw.WriteHeader(http.StatusInternalServerError)
				return true
			})()
			return alice.ask(send, fields{"recipient_agent_id": bob, "content": "hello?"})
		}},
	} {
		s := &story{t: t, real: map[string]string{}, inTheExample: map[string]string{}}
		a := c.provoke()
		if a.Status != c.status {
			t.Errorf("a reply with %d was to be provoked: %v", c.status, a)
			continue
		}
		s.holds(fmt.Sprint(c.status), testkit.Operations["POST "+c.path].Operation, a)
	}
}
