package service

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/routers"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// TestPriceInquiry: a bare request to any paid operation gets its price, whatever else is missing.
func TestPriceInquiry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, route := range testkit.Operations {
		info, paid := route.Operation.Extensions["x-payment-info"].(map[string]any)
		if !paid {
			continue
		}
		amount, err := x402.AtomicAmount(info["price"].(map[string]any)["amount"].(string))
		testkit.NoError(t, err)
		a := w.call(route.Method, route.Path, "")
		required, err := x402.DecodePaymentRequired(a.Header.Get(x402.HeaderPaymentRequired))
		if a.Status != http.StatusPaymentRequired || a.Code != "payment_required" || err != nil {
			t.Errorf("%s: %v (%v), want 402 payment_required", name, a, err)
			continue
		}
		want := []x402.PaymentRequirements{testkit.PlayMoney.Requirements(amount, devnet.Payee, 60)}
		if diff := cmp.Diff(want, required.Accepts); diff != "" {
			t.Errorf("%s offers (-want +got):\n%s", name, diff)
		}
		if required.Resource.URL != "http://parley.test"+route.Path || required.X402Version != 2 {
			t.Errorf("%s: the resource is %+v", name, required.Resource)
		}
		if a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: headers %v", name, a.Header)
		}
		var body struct {
			X402Version int                          `json:"x402Version"`
			Accepts     []x402.PaymentRequirementsV1 `json:"accepts"`
		}
		wantV1 := []x402.PaymentRequirementsV1{want[0].V1("base-sepolia", required.Resource)}
		if err := json.Unmarshal(a.Body, &body); err != nil || body.X402Version != 1 || cmp.Diff(wantV1, body.Accepts) != "" {
			t.Errorf("%s: the body does not say in version 1 what the header says: %s", name, a.Body)
		}
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodHead} {
			if method == route.Method {
				continue
			}
			a := w.call(method, route.Path, "")
			if a.Status != http.StatusMethodNotAllowed || !strings.Contains(a.Header.Get("Allow"), route.Method) ||
				(method != http.MethodHead && a.Code != "method_not_allowed") {
				t.Errorf("%s %s: %v, Allow %q, want 405 that allows %s", method, route.Path, a, a.Header.Get("Allow"), route.Method)
			}
		}
	}
}

// TestPathsHaveOneSpelling: no other spelling of a path reaches an operation, with or without its price.
func TestPathsHaveOneSpelling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	for _, path := range []string{"/chat", "/chat/private/send/", "//chat/private/send", "/chat//private/send", "/chat%2Fprivate%2Fsend",
		"/chat%252Fprivate/send", "/chat/private/%73end", "/CHAT/private/send", "/chat/private/send;x=1", "/chat/./private/send",
		"/chat/private/../private/send",
		"/chat%5Cprivate%5Csend", "/chat/private/send%00", "/chat/private/send%20"} {
		a := w.call(http.MethodPost, path, `{"recipient_agent_id":`+quote(alice.ID)+`,"content":"x"}`, "X-API-KEY", alice.Key)
		a.Want(t, "POST "+path, 404, "path_not_found")
		if !strings.Contains(a.Message, "/llms.txt") || !strings.Contains(a.Message, "/skill.md") {
			t.Errorf("POST %s: %v does not tell where to start", path, a)
		}
	}
	request := httptest.NewRequest(http.MethodOptions, w.url+"/chat/private/send", nil)
	request.RequestURI = ""
	request.Header.Set("Origin", "https://agent.example")
	request.Header.Set("Access-Control-Request-Method", "POST")
	response, err := w.http.Do(request)
	testkit.NoError(t, err)
	_ = response.Body.Close()
	if allowed := response.Header.Get("Access-Control-Allow-Headers"); response.StatusCode != http.StatusNoContent ||
		!strings.Contains(allowed, "PAYMENT-SIGNATURE") || !strings.Contains(allowed, "Access-Control-Expose-Headers") ||
		!strings.Contains(allowed, "Idempotency-Key") {
		t.Errorf("a preflight returns %d, allowing %q", response.StatusCode, allowed)
	}
}

// TestValidation: mistakes are told free of charge, before the price and before the key, with the field that is wrong.
func TestValidation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const send = "/chat/private/send"
	to := `"recipient_agent_id":` + quote(noAgent)
	for _, test := range []struct {
		name, path, body string
		fields           []string
		says             string
	}{
		{"no field", send, `{}`, []string{"/content", "/recipient_agent_id"}, "is required"},
		{"an invented field", send, `{` + to + `,"text":"hi"}`, []string{"/content", "/text"},
			"is not a field of this request; its fields are content, recipient_agent_id"},
		{"another case", send, `{` + to + `,"content":"mine","CONTENT":"other"}`, []string{"/CONTENT"}, "is not a field"},
		{"a field twice", send, `{` + to + `,"content":"one","content":"two"}`, []string{"/content"}, "twice"},
		{"two values", send, `{` + to + `,"content":"x"} {}`, []string{""}, "has trailing data after"},
		{"bytes behind", send, `{` + to + `,"content":"x"}]`, []string{""}, "not valid JSON"},
		{"cut off", send, `{` + to + `,"cont`, []string{""}, "not valid JSON"},
		{"an array", send, `[]`, []string{""}, "must be of type object"},
		{"a string", send, `"hello"`, []string{""}, "must be of type object"},
		{"null", send, `null`, []string{""}, "is required and must not be null"},
		{"a number as content", send, `{` + to + `,"content":5}`, []string{"/content"}, "must be of type string"},
		{"null as content", send, `{` + to + `,"content":null}`, []string{"/content"}, "null"},
		{"null where there is a default", "/search/agents", `{"query":"ann","page_size":null}`, []string{"/page_size"}, "null"},
		{"empty content", send, `{` + to + `,"content":""}`, []string{"/content"}, "must have 1 to 16384 characters"},
		{"blank content", send, `{` + to + `,"content":" \t\n"}`, []string{"/content"}, "must not be white space alone"},
		{"a field of an empty request", "/agent/rotate_key", `{"a":1}`, []string{"/a"}, "is not a field of this request, which has no fields"},
		{"content of other white space", send, `{` + to + `,"content":"\u00a0\u3000\u2003\u000b"}`, []string{"/content"},
			"must not be white space alone"},
		{"a username as an id", send, `{"recipient_agent_id":"bob","content":"x"}`, []string{"/recipient_agent_id"},
			"POST /agent/profile returns the id"},
		{"too much content", send, `{` + to + `,"content":"` + strings.Repeat("é", 16385) + `"}`, []string{"/content"},
			"must have 1 to 16384 characters"},
		{"U+0000", send, `{` + to + `,"content":"a\u0000b"}`, []string{"/content"}, "U+0000"},
		{"half a surrogate pair", send, `{` + to + `,"content":"a\ud800b"}`, []string{"/content"}, "not valid JSON"},
		{"no UTF-8", send, `{` + to + ",\"content\":\"a\xffb\"}", []string{"/content"}, "not valid JSON"},
		{"an id of another kind", send, `{"recipient_agent_id":` + quote(noChat) + `,"content":"x"}`, []string{"/recipient_agent_id"},
			"must be the id of an agent"},
		{"an id too short", send, `{"recipient_agent_id":"agent_1","content":"x"}`, []string{"/recipient_agent_id"},
			"must be the id of an agent"},
		{"a capital in a username", "/register/request_account", `{"requested_username":"Alice"}`, []string{"/requested_username"}, "must match"},
		{"a username too long", "/register/request_account", `{"requested_username":"` + strings.Repeat("a", 33) + `"}`,
			[]string{"/requested_username"}, "1 to 32"},
		{"neither id nor username", "/agent/profile", `{}`, []string{""}, "at least 1 of the fields agent_id, username"},
		{"an edit of nothing", "/agent/edit", `{}`, []string{""}, "at least 1 of the fields"},
		{"an edit of nothing", "/chat/group/edit", `{"chat_id":` + quote(noChat) + `}`, []string{""},
			"must have chat_id and at least one other field; its fields are add_member_ids, ban_agent_ids, chat_id"},
		{"an edit of no channel", "/channel/edit", `{"channel_id":` + quote(noChannel) + `}`, []string{""},
			"must have channel_id and at least one other field"},
		{"n too large", "/chat/private/messages", `{"chat_id":` + quote(noChat) + `,"n":251}`, []string{"/n"}, "must be at most 250"},
		{"n too small", "/chat/private/messages", `{"chat_id":` + quote(noChat) + `,"n":0}`, []string{"/n"}, "must be at least 1"},
		{"half a page", "/chat/private/messages", `{"chat_id":` + quote(noChat) + `,"page":1.5}`, []string{"/page"}, "must be an integer"},
		{"a page as a float", "/chat/private/messages", `{"chat_id":` + quote(noChat) + `,"page":1.0}`, []string{"/page"}, "must be an integer"},
		{"an exponent", "/chat/private/messages", `{"chat_id":` + quote(noChat) + `,"page":1e0}`, []string{"/page"}, "must be an integer"},
		{"a page beyond numbers", "/chat/private/messages", `{"chat_id":` + quote(noChat) + `,"page":1e300}`, []string{"/page"}, ""},
		{"too many ids", "/chat/group/create", `{"name":"x","initial_member_ids":["` + strings.Repeat(noAgent+`","`, 100) + noAgent + `"]}`,
			[]string{"/initial_member_ids"}, "at most 100"},
		{"a wrong id in a list", "/chat/group/create", `{"name":"x","initial_member_ids":["` + noAgent + `","bob"]}`,
			[]string{"/initial_member_ids/1"}, `, and is "bob"`},
	} {
		var payment []string
		if len(test.body) > 16<<10 { // without a payment the price comes first
			payment = []string{x402.HeaderPaymentSignature, "x"}
		}
		a := w.call(http.MethodPost, test.path, test.body, payment...)
		var got []string
		for _, detail := range a.Details {
			got = append(got, detail.Field)
		}
		if a.Status != http.StatusBadRequest || a.Code != "invalid_request" || cmp.Diff(test.fields, got) != "" ||
			!strings.Contains(a.Message, test.says) {
			t.Errorf("%s: %v, want 400 naming %q and saying %q", test.name, a, test.fields, test.says)
		}
	}
	says := map[string]string{
		"?page_size=x": "must be of type integer", "?mark_read=2": "must be true or false", "?mark_read=1": "must be true or false",
		"?limit=5": "is not a parameter of this operation; its parameters are page (integer), page_size (integer), mark_read (boolean)",
	}
	w.call(http.MethodGet, "/agent/me?page=1", "").Want(t, "a parameter where there are none", http.StatusBadRequest, "invalid_request")
	for name, a := range map[string]testkit.Reply{
		"?page=0":      w.call(http.MethodGet, "/agent/unread?page=0", "", x402.HeaderPaymentSignature, "x"),
		"?page_size=x": w.call(http.MethodGet, "/agent/unread?page_size=x", "", x402.HeaderPaymentSignature, "x"),
		"?mark_read=2": w.call(http.MethodGet, "/agent/unread?mark_read=2", "", x402.HeaderPaymentSignature, "x"),
		"?mark_read=1": w.call(http.MethodGet, "/agent/unread?mark_read=1", "", x402.HeaderPaymentSignature, "x"),
		"?limit=5":     w.call(http.MethodGet, "/agent/unread?limit=5", "", x402.HeaderPaymentSignature, "x"),
	} {
		unpaid := w.call(http.MethodGet, "/agent/unread"+name, "")
		unpaid.Want(t, "GET /agent/unread"+name+" without a payment", http.StatusBadRequest, "invalid_request")
		want, _, _ := strings.Cut(name, "=")
		if a.Status != http.StatusBadRequest || len(a.Details) != 1 || a.Details[0].Field != want || !strings.Contains(a.Message, says[name]) {
			t.Errorf("GET /agent/unread%s: %v, want 400 naming %s and saying %q", name, a, want, says[name])
		}
	}
	if a := w.call(http.MethodPost, send, `{`+to+`,"content":"`+strings.Repeat("é", 16384)+`"}`); a.Status != http.StatusPaymentRequired {
		t.Errorf("content of exactly the limit: %d, want 402", a.Status)
	}
	w.call(http.MethodPost, send, `{"content":"`+strings.Repeat("x", 256<<10)+`"}`).Want(t, "a body over 256 KiB", 413, "body_too_large")
	for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""} {
		w.call(http.MethodPost, send, `{`+to+`,"content":"x"}`, "Content-Type", media).Want(t, fmt.Sprintf("Content-Type %q", media), 415)
	}
	if a := w.call(http.MethodPost, send, `{`+to+`,"content":"x"}`, "Content-Type",
		"application/json; charset=utf-8"); a.Status != http.StatusPaymentRequired {
		t.Errorf("a charset beside application/json: %v, want 402", a)
	}
	if a := w.call(http.MethodPost, send, "", x402.HeaderPaymentSignature, "x"); a.Status != http.StatusBadRequest ||
		!strings.Contains(a.Message, "body is missing") {
		t.Errorf("a payment without a body: %v, want 400", a)
	}
}

// TestPublishedContract: the served documents are the file, with the operator's facts and nothing else changed.
func TestPublishedContract(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want map[string]any
	testkit.NoError(t, yaml.Unmarshal(parley.Contract, &want))
	want["servers"] = []any{map[string]any{"url": "http://parley.test"}}
	terms := testkit.PlayMoney.Requirements(1, devnet.Payee, 60)
	want["x-payment-info"] = map[string]any{"protocols": []any{map[string]any{"x402": map[string]any{"scheme": "exact",
		"network": terms.Network, "asset": terms.Asset, "payTo": terms.PayTo, "maxTimeoutSeconds": 60, "facilitator": "FACILITATOR"}}}}
	for name, route := range testkit.Operations {
		operation := want["paths"].(map[string]any)[route.Path].(map[string]any)[strings.ToLower(route.Method)].(map[string]any)
		info, paid := operation["x-payment-info"].(map[string]any)
		if !paid {
			continue
		}
		price, err := x402.AtomicAmount(info["price"].(map[string]any)["amount"].(string))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		info["protocols"] = []any{map[string]any{"x402": map[string]any{"scheme": "exact", "network": terms.Network,
			"amount": strconv.FormatUint(price, 10)}}}
		operation["description"] = strings.TrimSpace(operation["description"].(string)) + " Costs " + x402.FormatUSD(price) + " USD."
	}
	opened := 0
	var open func(value any)
	open = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, one := range value {
				open(one)
			}
		case map[string]any:
			if value["x-open-enum"] == true {
				opened++
				value["x-known-values"] = value["enum"]
				delete(value, "x-open-enum")
				delete(value, "enum")
			}
			for _, one := range value {
				open(one)
			}
		}
	}
	if open(want); opened != 3 {
		t.Errorf("%d open enums, want 3", opened)
	}
	for path, decode := range map[string]func([]byte, any) error{"/openapi.yaml": yaml.Unmarshal, "/openapi.json": json.Unmarshal} {
		a := w.call(http.MethodGet, path, "")
		var got map[string]any
		if err := decode(a.Body, &got); err != nil || a.Status != http.StatusOK {
			t.Fatalf("%s: %d %v", path, a.Status, err)
		}
		wantJSON, _ := json.Marshal(want)
		gotJSON, err := json.Marshal(got)
		testkit.NoError(t, err)
		if strings.Contains(string(a.Body), ": 0x") {
			t.Errorf("%s has a text that YAML 1.1 takes for a number", path)
		}
		protocol := got["x-payment-info"].(map[string]any)["protocols"].([]any)[0].(map[string]any)
		facilitator := protocol["x402"].(map[string]any)["facilitator"].(string)
		if same := strings.ReplaceAll(string(wantJSON), "FACILITATOR", facilitator); same != string(gotJSON) {
			t.Errorf("%s differs from the file in more than the operator's facts (-want +got):\n%s", path, cmp.Diff(same, string(gotJSON)))
		}
		if again := w.call(http.MethodGet, path, "", "If-None-Match", a.Header.Get("ETag")); again.Status != http.StatusNotModified {
			t.Errorf("%s asked for again: %d, want 304", path, again.Status)
		}
		begin := map[string]string{"/openapi.json": `{"openapi":"3.0.3","info":{"title":"Parley"`,
			"/openapi.yaml": "openapi: 3.0.3\ninfo:\n  title: Parley\n"}[path]
		if !strings.HasPrefix(string(a.Body), begin) {
			t.Errorf("%s does not begin with the introduction: %.80s", path, a.Body)
		}
	}
}

// TestContractSaysTermsOnce: payee, token and facilitator are in the served contract once for each scheme, not in each operation. An
// operation has 4,500 bytes on average: a language model reads a token for every four.
func TestContractSaysTermsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	served := string(w.call(http.MethodGet, "/openapi.json", "").Body)
	if most := 4500 * strings.Count(served, `"operationId"`); len(served) > most {
		t.Errorf("/openapi.json has %d bytes, want at most %d: shorten the contract", len(served), most)
	}
	for _, name := range []string{"asset", "payTo", "facilitator"} {
		if n := strings.Count(served, `"`+name+`":"`); n > 4 { // two of them in examples
			t.Errorf("/openapi.json says %s %d times, want it once for each scheme", name, n)
		}
	}
}

// TestDiscoveryDocuments: what agents and crawlers find, from one place and about the same address.
func TestDiscoveryDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	llms := w.call(http.MethodGet, "/llms.txt", "")
	for name, route := range testkit.Operations {
		if !strings.Contains(string(llms.Body), "- "+name+": "+route.Operation.Summary+" (") {
			t.Errorf("/llms.txt does not name %s", name)
		}
	}
	if !strings.HasPrefix(string(llms.Body), "# Parley\n\n> ") ||
		!strings.Contains(string(llms.Body), "Send a private message (0.005 USD)") {
		t.Errorf("/llms.txt is not in llmstxt.org's form: %.300s", llms.Body)
	}
	if !strings.Contains(string(llms.Body), "chat_id, before_message_id?, mark_read = true, n = 50 (at most 250)") {
		t.Errorf("/llms.txt does not name all fields:\n%s", llms.Body)
	}
	skill := w.call(http.MethodGet, "/skill.md", "")
	if !strings.HasPrefix(string(skill.Body), "---\nname: parley\n") ||
		!strings.Contains(string(skill.Body), "http://parley.test/openapi.json") || strings.Contains(string(skill.Body), "parley.example") {
		t.Errorf("/skill.md is not the skill for this server: %.300s", skill.Body)
	}
	sdks := w.call(http.MethodGet, "/sdk.md", "")
	if !strings.HasPrefix(string(sdks.Body), "# SDKs\n") || strings.Contains(string(sdks.Body), "](..") ||
		!strings.Contains(string(sdks.Body), `baseUrl: "http://parley.test"`) || strings.Contains(string(sdks.Body), "127.0.0.1") {
		t.Errorf("/sdk.md is not the guide to SDKs for this server, without relative links: %.300s", sdks.Body)
	}
	javaScript, python := w.call(http.MethodGet, "/parley.mjs", ""), w.call(http.MethodGet, "/parley.py", "")
	if !bytes.Equal(javaScript.Body, parley.SkillJavaScript) || !bytes.Equal(python.Body, parley.SkillPython) {
		t.Errorf("/parley.mjs is %.100q, /parley.py %.100q, want the programs of the skill", javaScript.Body, python.Body)
	}
	var index struct {
		Schema string `json:"$schema"`
		Skills []map[string]string
	}
	skills := w.call(http.MethodGet, "/.well-known/agent-skills/index.json", "")
	testkit.NoError(t, json.Unmarshal(skills.Body, &index))
	wantSkills := []map[string]string{{"name": "parley", "type": "skill-md", "url": "http://parley.test/skill.md",
		"digest": fmt.Sprintf("sha256:%x", sha256.Sum256(skill.Body)),
		"description": "Send and read messages between AI agents over Parley, a paid HTTP API (x402, USDC). Use when an agent must " +
			"send messages " +
			"to other agents, take part in group chats, broadcast on a channel, or read messages."}}
	if diff := cmp.Diff(wantSkills, index.Skills); diff != "" || index.Schema != "https://schemas.agentskills.io/discovery/0.2.0/schema.json" {
		t.Errorf("the index of skills, of schema %q (-want +got):\n%s", index.Schema, diff)
	}
	picture := w.call(http.MethodGet, "/favicon.svg", "")
	if picture.Header.Get("Content-Type") != "image/svg+xml" || xml.Unmarshal(picture.Body, &struct{ XMLName xml.Name }{}) != nil {
		t.Errorf("the icon is no picture: %v %s", picture.Header, picture.Body)
	}
	var card struct {
		Capabilities        map[string]bool
		SupportedInterfaces []struct{ URL, ProtocolBinding string }
		Skills              []struct{ ID, Description string }
	}
	raw := w.call(http.MethodGet, "/.well-known/agent-card.json", "")
	testkit.NoError(t, json.Unmarshal(raw.Body, &card))
	want := map[string]bool{"streaming": false, "pushNotifications": false, "stateTransitionHistory": false}
	if cmp.Diff(want, card.Capabilities) != "" || len(card.SupportedInterfaces) != 1 ||
		card.SupportedInterfaces[0].URL != "http://parley.test" ||
		!strings.HasPrefix(card.SupportedInterfaces[0].ProtocolBinding, "https://") || len(card.Skills) == 0 {
		t.Errorf("the agent card: %s", raw.Body)
	}
	for _, a := range []testkit.Reply{llms, skill, javaScript, python, skills, picture, raw} {
		if a.Header.Get("ETag") == "" || !strings.Contains(a.Header.Get("Cache-Control"), "max-age") {
			t.Errorf("a document cannot be cached: %v", a.Header)
		}
	}
}

// needsKey reports whether an operation needs an API key.
func needsKey(route *routers.Route) bool { return route.Operation.Security == nil }

// TestKeyIsAskedFor: a 401, and the 402 of an operation that needs a key and got none, say how a key is sent, and a 401 how to get one.
func TestKeyIsAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	const challenge = `ApiKey realm="parley", header="X-API-KEY"`
	for name, route := range testkit.Operations {
		if route.Operation.Extensions["x-payment-info"] == nil {
			continue
		}
		want := ""
		if needsKey(route) {
			want = challenge
		}
		if got := w.call(route.Method, route.Path, "").Header.Get("WWW-Authenticate"); got != want {
			t.Errorf("%s: the 402 has WWW-Authenticate %q, want %q", name, got, want)
		}
	}
	for _, key := range []string{"", "parley_x"} {
		refused := w.pay(alice.Wallet, "/agent/profile", `{"username":"alice"}`, "X-API-KEY", key)
		refused.WantRefused(t, "the key "+key, http.StatusUnauthorized, "invalid_api_key")
		if got := refused.Header.Get("WWW-Authenticate"); got != challenge ||
			!strings.Contains(refused.Message, "POST /register/request_account") {
			t.Errorf("%s: WWW-Authenticate is %q, want %q, and how to register", refused, got, challenge)
		}
	}
	const asked = "and the X-API-KEY that POST /register/create_account returned"
	for key, want := range map[string]bool{"": true, alice.Key: false} {
		reply := w.call(http.MethodPost, "/agent/profile", `{"username":"alice"}`, "X-API-KEY", key)
		reply.Want(t, "without a payment", http.StatusPaymentRequired)
		if strings.Contains(reply.Message, asked) != want || (reply.Header.Get("WWW-Authenticate") != "") != want {
			t.Errorf("a 402 with a key of %d characters says %q, WWW-Authenticate %q; want it to ask for a key: %t", len(key), reply.Message,
				reply.Header.Get("WWW-Authenticate"), want)
		}
	}
	if got := w.call(http.MethodPost, "/agent/profile", "{}").Header.Get("WWW-Authenticate"); got != "" {
		t.Errorf("a 400 has WWW-Authenticate %q", got)
	}
}

// TestCatalogueEntries: each 402 carries an entry whose example call fits its own schema.
func TestCatalogueEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, route := range testkit.Operations {
		if route.Operation.Extensions["x-payment-info"] == nil {
			continue
		}
		required, err := x402.DecodePaymentRequired(w.call(route.Method, route.Path, "").Header.Get(x402.HeaderPaymentRequired))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var entry struct {
			Info   any
			Schema any
		}
		if err := json.Unmarshal(required.Extensions["bazaar"], &entry); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource("entry.json", entry.Schema); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		schema, err := compiler.Compile("entry.json")
		if err != nil {
			t.Fatalf("%s: the entry's schema: %v", name, err)
		}
		if err := schema.Validate(entry.Info); err != nil {
			t.Errorf("%s: the example call does not fit its schema: %v", name, err)
		}
		input := entry.Info.(map[string]any)["input"].(map[string]any)
		if input["method"] != route.Method || (route.Operation.RequestBody != nil) != (input["body"] != nil) ||
			(route.Method == http.MethodGet) != (input["queryParams"] != nil) || needsKey(route) != (input["headers"] != nil) {
			t.Errorf("%s: the entry describes %v", name, input)
		}
	}
}

// TestEveryRefusalIsInTheContract: callers branch on the codes, so each must be in the enum.
func TestEveryRefusalIsInTheContract(t *testing.T) {
	t.Parallel()
	for _, refusal := range store.Refusals {
		if !client.ErrorCode(refusal.Code).Valid() {
			t.Errorf("the code %q is not in the contract's ErrorCode", refusal.Code)
		}
	}
}
