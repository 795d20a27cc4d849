package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// FuzzOperations sends generated and broken requests to every operation, with and without payments and keys. Whatever
// comes, there is no 5xx, no status that the contract does not declare, no body that breaks its schema (the world's
// transport looks at every reply), and no charge without a 200. `go test` runs the seeds; `go test -fuzz` goes on.
func FuzzOperations(f *testing.F) {
	for seed := range uint64(fuzzSeeds) {
		f.Add(seed, []byte{byte(seed), byte(seed >> 3), 7})
	}
	var names []string
	for name := range testkit.Operations {
		names = append(names, name)
	}
	slices.Sort(names)
	// One world for all inputs of this process: the deeper states are reached by what earlier inputs left.
	stage := newFuzzStage(newWorld(f, withoutLimits))
	f.Fuzz(func(t *testing.T, seed uint64, noise []byte) {
		stage.play(t, rand.New(rand.NewPCG(seed, uint64(len(noise)))), names, noise)
	})
}

// fuzzSeeds is how many generated requests `go test` sends.
const fuzzSeeds = 600

type fuzzStage struct {
	mu     sync.Mutex
	world  *world
	agents []*agent
	ids    map[string][]string // by the title of their schema
	last   string              // a payment to send again
	paid   map[string]bool     // wallets and the operations with a secret that they paid for
}

func newFuzzStage(w *world) *fuzzStage {
	s := &fuzzStage{world: w, ids: map[string][]string{}, paid: map[string]bool{}}
	for _, name := range []string{"ann", "ben", "cleo"} {
		a := w.agent(name)
		s.agents = append(s.agents, a)
		s.learn("agent_id", a.ID)
	}
	return s
}

// learn keeps an id that a reply gave, for later requests.
func (s *fuzzStage) learn(field, id string) {
	kinds := map[string]string{"agent_id": "id of an agent", "chat_id": "id of a chat", "channel_id": "id of a channel",
		"message_id": "id of a message"}
	if kind := kinds[field]; kind != "" && id != "" {
		s.ids[kind] = append(s.ids[kind], id)
		s.ids[kind] = s.ids[kind][max(0, len(s.ids[kind])-20):]
	}
}

func (s *fuzzStage) play(t *testing.T, r *rand.Rand, names []string, noise []byte) {
	s.mu.Lock() // one at a time: balances are compared
	defer s.mu.Unlock()
	w := s.world.forTest(t)
	name := names[r.IntN(len(names))]
	route := testkit.Operations[name]
	who := s.agents[r.IntN(len(s.agents))]
	price := uint64(0)
	if info, paid := route.Operation.Extensions["x-payment-info"].(map[string]any); paid {
		price, _ = x402.AtomicAmount(info["price"].(map[string]any)["amount"].(string))
	}

	var headers []string
	if r.IntN(8) > 0 {
		headers = append(headers, "X-API-KEY", who.Key)
	}
	// A lost response with a secret is repeated, uncharged, to a new payment of the same wallet for the same request.
	repeated := s.paid[testkit.Address(who.Wallet)+name]
	if price > 0 {
		switch r.IntN(10) {
		case 0: // not paid
		case 1:
			headers = append(headers, x402.HeaderPaymentSignature, string(bytes.Map(printable, noise)))
		case 2:
			headers, repeated = append(headers, x402.HeaderPaymentSignature, s.last), true
		default:
			s.last = w.signFor(who.Wallet, route.Method, route.Path)
			headers = append(headers, x402.HeaderPaymentSignature, s.last)
			s.paid[testkit.Address(who.Wallet)+name] = route.Operation.Extensions["x-secret-response"] == true
		}
	}
	path, body := route.Path, ""
	if route.Operation.RequestBody != nil {
		value := s.value(r, route.Operation.RequestBody.Value.Content["application/json"].Schema.Value, noise)
		raw, err := json.Marshal(value)
		if err != nil {
			t.Skip("not JSON") // an infinity
		}
		body = breakJSON(r, string(raw), noise)
	} else if len(route.Operation.Parameters) > 0 {
		var query []string
		for _, parameter := range route.Operation.Parameters {
			if r.IntN(2) == 0 {
				query = append(query, fmt.Sprintf("%s=%v", parameter.Value.Name, s.value(r, parameter.Value.Schema.Value, []byte("x"))))
			}
		}
		path += "?" + strings.ReplaceAll(strings.Join(query, "&"), " ", "+")
		if _, err := http.NewRequest(route.Method, w.url+path, nil); err != nil {
			t.Skip("no such URL can be sent")
		}
	}

	revenue := w.Revenue()
	a, err := w.try(route.Method, path, body, headers...)
	if err != nil {
		t.Skipf("the request cannot be sent: %v", err) // header values that Go's client refuses
	}
	charged := w.Revenue() - revenue
	switch {
	case a.Status >= http.StatusInternalServerError:
		t.Errorf("%s %s: %v", name, body, a)
	case a.Status == http.StatusOK && charged != price && (!repeated || charged != 0):
		t.Errorf("%s %s: 200 for %d, the price is %d", name, body, charged, price)
	case a.Status != http.StatusOK && charged != 0 && !a.Charged:
		t.Errorf("%s %s: %v, and %d was charged", name, body, a, charged)
	}
	var replied map[string]any
	if a.Status == http.StatusOK && json.Unmarshal(a.Body, &replied) == nil {
		for _, field := range []string{"chat_id", "channel_id", "message_id"} {
			id, _ := replied[field].(string)
			s.learn(field, id)
		}
		if key, _ := replied["api_key"].(string); key != "" && name == "POST /agent/rotate_key" {
			who.Key = key // also for a repeated payment: it may have been rejected before
		}
	}
}

func printable(r rune) rune {
	if r < 32 || r > 126 {
		return -1
	}
	return r
}

// value generates what a schema describes, mostly: one in eight values is wrong in type, length or spelling.
func (s *fuzzStage) value(r *rand.Rand, schema *openapi3.Schema, noise []byte) any {
	if r.IntN(24) == 0 {
		return []any{nil, true, -1, 1.5, math.MaxInt64, "", string(noise), []any{}, map[string]any{}, strings.Repeat("x", r.IntN(20000)), "\x00",
			"0'; --"}[r.IntN(12)]
	}
	switch {
	case len(schema.Enum) > 0:
		return schema.Enum[r.IntN(len(schema.Enum))]
	case schema.Type.Is("object"):
		object := map[string]any{}
		for name, property := range schema.Properties {
			if slices.Contains(schema.Required, name) || r.IntN(3) == 0 {
				object[name] = s.value(r, property.Value, noise)
			}
		}
		if r.IntN(30) == 0 {
			object[string(noise)] = "unasked"
		}
		return object
	case schema.Type.Is("array"):
		list := []any{}
		for range r.IntN(4) {
			list = append(list, s.value(r, schema.Items.Value, noise))
		}
		return list
	case schema.Type.Is("boolean"):
		return r.IntN(2) == 0
	case schema.Type.Is("integer"):
		return []int64{1, 1, 1, 2, 10, 50, 100, 250, 251, 0, 1 << 53, math.MaxInt64, r.Int64N(1000)}[r.IntN(13)]
	}
	if known := s.ids[schema.Title]; len(known) > 0 && r.IntN(6) > 0 {
		return known[r.IntN(len(known))]
	}
	if strings.HasPrefix(schema.Title, "id of") {
		example, _ := schema.Example.(string)
		return example
	}
	texts := []string{"👍", "🇵🇹", "a", "hello", "ann", "weather_" + fmt.Sprint(r.IntN(50)), "(unclosed", "a.*b", "(a+)+$", "[a-z", `\`, "%_%",
		"שלום", "é́", "𝔘", "x{1000}{1000}", string(noise)}
	text := texts[r.IntN(len(texts))]
	if schema.MaxLength != nil && r.IntN(10) == 0 {
		text = strings.Repeat("ß", int(*schema.MaxLength)+r.IntN(3)-1)
	}
	return text
}

var insideJSON = regexp.MustCompile(`[{}\[\]:,"]`)

// breakJSON damages one body in ten.
func breakJSON(r *rand.Rand, body string, noise []byte) string {
	switch r.IntN(40) {
	case 0:
		return body + string(noise)
	case 1:
		return body[:r.IntN(len(body)+1)]
	case 2:
		if at := insideJSON.FindAllStringIndex(body, -1); len(at) > 0 {
			i := at[r.IntN(len(at))][0]
			return body[:i] + string(noise) + body[i+1:]
		}
	case 3:
		return strings.Repeat("[", r.IntN(20000)) + body
	}
	return body
}
