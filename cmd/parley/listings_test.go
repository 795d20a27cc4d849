//go:build !noserver

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
)

// catalogue is a facilitator that lists what it settles with exact, and forgets it after 30 days.
type catalogue struct {
	URL      string
	merchant bool // it can select by payee
	mu       sync.Mutex
	listed   map[string]time.Time
	shift    time.Duration
}

func newCatalogue(t *testing.T, play string, merchant bool) *catalogue {
	t.Helper()
	c := &catalogue{merchant: merchant, listed: map[string]time.Time{"https://other.example/": time.Now().AddDate(1, 0, 0)}}
	c.URL = inFrontOf(t, play, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if strings.HasPrefix(r.URL.Path, "/discovery/") {
			c.serve(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.URL.Path == "/settle" {
			c.take(body)
		}
		pass.ServeHTTP(w, r)
	}).URL
	return c
}

// take lists the resource of a payment that echoes the entry.
func (c *catalogue) take(body []byte) {
	var settled struct {
		PaymentPayload struct {
			Resource   struct{ URL string }
			Extensions map[string]any
		}
		PaymentRequirements struct{ Scheme string }
	}
	if json.Unmarshal(body, &settled) == nil && settled.PaymentRequirements.Scheme == "exact" &&
		settled.PaymentPayload.Extensions["bazaar"] != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.listed[settled.PaymentPayload.Resource.URL] = c.now()
	}
}

func (c *catalogue) now() time.Time { return time.Now().Add(c.shift) }

// serve returns pages of at most two entries.
func (c *catalogue) serve(w http.ResponseWriter, r *http.Request) {
	member := "resources"
	switch r.URL.Path {
	case "/discovery/resources":
		member = "items"
	case "/discovery/merchant":
		if !c.merchant || r.FormValue("payTo") != devnet.Payee {
			http.NotFound(w, r)
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []map[string]any{}
	for resource, at := range c.listed {
		if c.now().Sub(at) < 30*24*time.Hour {
			all = append(all, map[string]any{"resource": resource, "type": "http", "x402Version": 2, "accepts": []any{}, "lastUpdated": at})
		}
	}
	slices.SortFunc(all, func(a, b map[string]any) int { return strings.Compare(a["resource"].(string), b["resource"].(string)) })
	offset, _ := strconv.Atoi(r.FormValue("offset"))
	page := all[min(offset, len(all)):min(offset+2, len(all))]
	_ = json.NewEncoder(w).Encode(map[string]any{"x402Version": 2, member: page,
		"pagination": map[string]int{"limit": 2, "offset": offset, "total": len(all)}})
}

// pass lets time pass for the catalogue and for the ledger.
func (c *catalogue) pass(t *testing.T, databaseURL string, days int) {
	t.Helper()
	c.mu.Lock()
	c.shift += time.Duration(days) * 24 * time.Hour
	c.mu.Unlock()
	testkit.NoError(t, execute(databaseURL, fmt.Sprintf("UPDATE payments SET created_at = created_at - interval '%d days'", days)))
}

// listing is an operation in the output of parley listings --json.
type listing struct {
	Operation, Resource, State, Paid string
	Faults                           []string
	Listed                           *bool
}

// listed runs parley listings and returns the operations by state, in the order of their paths.
func listed(t *testing.T, args ...string) (states map[string][]string, all []listing) {
	t.Helper()
	ran := invoke(t, append([]string{"listings", "--json"}, args...)...)
	var result struct{ Operations []listing }
	if err := json.Unmarshal([]byte(ran.out), &result); err != nil || ran.err != nil {
		t.Fatalf("listings: %v, %v\n%s%s", err, ran.err, ran.out, ran.errs)
	}
	states = map[string][]string{}
	for _, one := range result.Operations {
		states[one.State] = append(states[one.State], one.Operation)
	}
	return states, result.Operations
}

// newListings starts a server whose facilitator has a catalogue, and returns the settings and an agent that has registered with exact.
func newListings(t *testing.T, merchant bool, further ...string) (settings []string, c *catalogue, agent *testkit.Agent) {
	t.Helper()
	settings, network := goodWorld(t)
	c = newCatalogue(t, network, merchant)
	settings = append(append(settings, "--facilitator-url", c.URL), further...)
	return settings, c, start(t, nil, append([]string{"serve"}, settings...)...).register(t, 1, "alice")
}

// TestListings: the command tells which operations the facilitator's catalogue lists, will drop and has dropped.
func TestListings(t *testing.T) {
	t.Parallel()
	for _, merchant := range []bool{true, false} {
		t.Run(fmt.Sprintf("by payee %t", merchant), func(t *testing.T) {
			t.Parallel()
			settings, c, _ := newListings(t, merchant)
			registered := []string{"createAccount", "requestAccount"}
			states, _ := listed(t, settings...)
			wantStates(t, states, map[string][]string{"ok": registered})
			c.pass(t, settings[1], 26)
			states, _ = listed(t, settings...)
			wantStates(t, states, map[string][]string{"lapsing": registered})
			c.pass(t, settings[1], 5)
			states, all := listed(t, settings...)
			wantStates(t, states, map[string][]string{"lapsed": registered})
			for _, one := range all {
				if one.Listed == nil || *one.Listed {
					t.Errorf("%s is listed: %v", one.Operation, one.Listed)
				}
			}
			table := invoke(t, append([]string{"listings"}, settings...)...).good(t)
			for _, want := range []string{"requestAccount +31.0 days ago +no +lapsed\n", "lists 0 of \\d+ ", "\nlapsed → "} {
				if !regexp.MustCompile(want).MatchString(table) {
					t.Errorf("the table lacks %q:\n%s", want, table)
				}
			}
		})
	}
}

// wantStates compares all states but never.
func wantStates(t *testing.T, got, want map[string][]string) {
	t.Helper()
	delete(got, "never")
	for _, names := range got {
		slices.Sort(names)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations by state (-want +got):\n%s", diff)
	}
}

// TestListingsPay: with a wallet of the operator the command pays one call with exact for each operation that lapses, at most what it may
// spend. The audit and the summary name these payments as the operator's own. Without a wallet it pays nothing.
func TestListingsPay(t *testing.T) {
	t.Parallel()
	settings, c, alice := newListings(t, true, "--authorizer-key", strings.Repeat("1", 64)) // payment channels are offered first
	database := []string{"--database-url", settings[1]}
	account := devnet.Accounts()[2]
	pay := []string{"--pay", "file:" + writeFile(t, account.PrivateKey), "--pay-api-key", "file:" + writeFile(t, alice.Key)}
	own := func() string {
		t.Helper()
		var summary struct {
			Settlement struct{ Own struct{ Calls, Amount int64 } }
		}
		out := invoke(t, append([]string{"payments", "summary", "--json"}, database...)...).good(t)
		testkit.NoError(t, json.Unmarshal([]byte(out), &summary))
		return fmt.Sprint(summary.Settlement.Own.Calls, summary.Settlement.Own.Amount)
	}
	c.pass(t, settings[1], 31)
	listed(t, settings...)
	if got := own(); got != "0 0" {
		t.Errorf("without a wallet the operator has paid %s", got)
	}
	states, all := listed(t, append(append(settings, pay...), "--pay-most", "0.0095")...)
	// Three calls for 0.001 USD, one for 0.002 and none for 0.005: the sum would be 0.010.
	wantStates(t, states, map[string][]string{"lapsed": {"createAccount", "requestAccount"},
		"ok": {"editAgent", "getAgentProfile", "getOwnAgent", "listUnreadMessages"}})
	if got := own(); got != "4 5000" {
		t.Errorf("the operator has paid %s, want 4 calls for 5000", got)
	}
	for _, one := range all {
		paid := slices.Contains(states["ok"], one.Operation)
		if paid != strings.HasPrefix(one.Paid, "paid 0.00") || paid != *one.Listed {
			t.Errorf("%s: %q, listed %t", one.Operation, one.Paid, *one.Listed)
		}
	}
	listed(t, append(append(settings, pay...), "--pay-most", "0.0095")...) // pays what is missing, and nothing again
	if got := own(); got != "5 10000" {
		t.Errorf("after a second run the operator has paid %s, want 5 calls for 10000", got)
	}
	entries := invoke(t, append([]string{"audit", "list", "--action", "listings.pay", "--format", "json"}, database...)...).good(t)
	if strings.Count(entries, strings.ToLower(account.Address)) != 2 {
		t.Errorf("the audit does not name the wallet of each run:\n%s", entries)
	}
	for _, wrong := range [][]string{pay, append(pay, "--pay-most", "0"), append(pay, "--pay-most", "1", "--pay-api-key", "sk_none")} {
		if ran := invoke(t, append(append([]string{"listings"}, settings...), wrong...)...); ran.err == nil {
			t.Errorf("listings %v: no error", wrong[2:])
		}
	}
	if got := own(); got != "5 10000" {
		t.Errorf("wrong arguments paid: %s", got)
	}
}

// TestListingsFaults: the command tells what keeps operations out of catalogues, and fails.
func TestListingsFaults(t *testing.T) {
	t.Parallel()
	listen := testkit.FreeAddress(t)
	spoil := map[string]func(*http.Response){
		"/agent/me":          func(r *http.Response) { r.StatusCode = http.StatusUnauthorized },
		"/search/agents":     func(r *http.Response) { r.Header.Del("PAYMENT-REQUIRED") },
		"/search/groups":     func(r *http.Response) { rewrite(t, r, `"const":"http"`, `"const":"ftp"`) },
		"/search/channels":   func(r *http.Response) { rewrite(t, r, `"bazaar"`, `"bazar"`) },
		"/chat/private/send": func(r *http.Response) { rewrite(t, r, `"url":"http:`, `"url":"https:`) },
		"/chat/group/send": func(r *http.Response) {
			if r.Request.ContentLength > 0 {
				r.StatusCode = http.StatusBadRequest
			}
		},
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: listen})
	proxy.ModifyResponse = func(r *http.Response) error {
		if change := spoil[r.Request.URL.Path]; change != nil && r.StatusCode == http.StatusPaymentRequired {
			change(r)
		}
		return nil
	}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	settings, _, _ := newListings(t, true, "--listen", listen, "--base-url", front.URL, "--limit-address-rate", "7") // 70 at once
	if ran := invoke(t, append(append([]string{"listings"}, settings...), "--base-url", "http://127.0.0.1:1")...); ran.err == nil ||
		!strings.Contains(ran.err.Error(), "cannot be reached") {
		t.Errorf("without a server: %v", ran.err)
	}
	ran := invoke(t, append([]string{"listings"}, settings...)...)
	if ran.err == nil || !strings.Contains(ran.err.Error(), "catalogues cannot list 6 of ") {
		t.Errorf("error %v", ran.err)
	}
	for _, want := range []string{
		"getOwnAgent .* faulty: an empty request: status 401 instead of 402", "searchAgents .* faulty: an empty request: ",
		"searchGroups .* faulty: the bazaar entry does not match its schema: ", "searchChannels .* faulty: the 402 has no extension bazaar",
		"sendPrivateMessage .* faulty: the 402 is for https:", "sendGroupMessage .* faulty: the example request: status 400 instead of 402",
	} {
		if !regexp.MustCompile(want).MatchString(ran.out) {
			t.Errorf("it does not find %q:\n%s", want, ran.out)
		}
	}
}

// rewrite replaces a part of PAYMENT-REQUIRED.
func rewrite(t *testing.T, r *http.Response, was, is string) {
	raw, err := base64.StdEncoding.DecodeString(r.Header.Get("PAYMENT-REQUIRED"))
	if err != nil || !bytes.Contains(raw, []byte(was)) {
		t.Errorf("no %s in %s, %v", was, raw, err)
	}
	r.Header.Set("PAYMENT-REQUIRED", base64.StdEncoding.EncodeToString(bytes.ReplaceAll(raw, []byte(was), []byte(is))))
}
