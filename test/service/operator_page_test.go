package service

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
)

// operatorPage asks for a page of the operators' listener.
func (w *world) operatorPage(method, target string) *httptest.ResponseRecorder {
	w.T.Helper()
	request := httptest.NewRequestWithContext(w.T.Context(), method, target, nil)
	if strings.HasPrefix(target, "/") {
		request.Host = "127.0.0.1:8404"
	}
	recorder := httptest.NewRecorder()
	w.server.Admin().ServeHTTP(recorder, request)
	return recorder
}

// seenByOperator is the operator's page without tags, one space between words.
func (w *world) seenByOperator() (text, html string) {
	w.T.Helper()
	response := w.operatorPage(http.MethodGet, "/")
	html = response.Body.String()
	if response.Code != http.StatusOK {
		w.T.Fatalf("the operator's page: %d %s", response.Code, html)
	}
	text = strings.ReplaceAll(html, "<wbr>", "")
	text = regexp.MustCompile(`(?s)<style>.*?</style>|<[^>]*>`).ReplaceAllString(text, " ")
	return strings.Join(strings.Fields(text), " "), html
}

// TestOperatorPageEmpty: a new server says that nothing happened yet, and that it works.
func TestOperatorPageEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text, html := w.seenByOperator()
	testkit.Contains(t, text, "Database ok", "Facilitator ok", "Blockchain ok", "Clock ok", "Revenue today 0.000 USD",
		"No paid call in the last 14 days",
		"No payment is open.", "No call since the start", "No call was refused", "No agent has an account yet", "payments 0", "eip155:84532")
	if !strings.Contains(html, "<title>Parley: all is well</title>") || strings.Contains(text, "Payment channels") {
		t.Errorf("a server without problems and payment channels shows:\n%s", text)
	}
}

// TestOperatorPage: calls, revenue, open payments, payment channels, agents and refusals of a server that is used.
func TestOperatorPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob_"+strings.Repeat("x", 28))
	alice.send(bob, "a secret of alice")
	alice.ask("/chat/private/info", fields{"chat_id": noChat}).Want(t, "a chat that is not there", 404)
	w.call(http.MethodGet, "/nothing", "")
	w.Exec(`UPDATE payments SET state = 'undeliverable', failure_reason = 'too late' WHERE operation = 'sendPrivateMessage'`)

	text, html := w.seenByOperator()
	testkit.Contains(t, text, "requestAccount 2", "createAccount 2", "undeliverable", "parley payments show ",
		"1 undeliverable It settled, then the call was refused.", "too late",
		"Newest agents", "alice", "bob_"+strings.Repeat("x", 28), "2 agents, 0 group chats, 0 channels. 1 messages were sent.",
		"chat_not_found getPrivateChat", "path_not_found", "Payment channels", "No agent has opened a payment channel yet.",
		"documents, unknown paths", "Payments ok none is open for long", "Claims ok up to date")
	if strings.Contains(html, "a secret of alice") || strings.Contains(html, alice.Key) {
		t.Error("the operator's page shows a message or a key")
	}
	if payer := strings.ToLower(testkit.Address(alice.Wallet)); !strings.Contains(html, payer[:6]+"…"+payer[len(payer)-4:]) {
		t.Errorf("the page does not show the payer %s shortened:\n%s", payer, text)
	}
}

// TestOperatorPageRevenue: what was delivered counts on its day (UTC), what was not does not, and what is older than two weeks neither.
func TestOperatorPageRevenue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("alice") // three paid calls
	w.Exec(`UPDATE payments SET created_at = created_at - interval '3 days' WHERE operation = 'createAccount'`)
	w.Exec(`UPDATE payments SET created_at = created_at - interval '15 days' WHERE operation = 'requestAccount'`)
	w.Exec(`INSERT INTO payments (id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, fingerprint,
		signature_hash, state,
			updated_at, operation, created_at, lease_until)
		SELECT gen_random_uuid(), 2, scheme, network, asset, payer, nonce || n, pay_to, 5000, valid_before, fingerprint, signature_hash,
			CASE WHEN n % 2 = 0 THEN 'delivered' ELSE 'failed' END, updated_at, 'sendPrivateMessage', 
			date_trunc('day', created_at) + n * interval '1 hour', lease_until
		FROM payments, generate_series(0, 23) AS n WHERE operation = 'createAccount'`)
	text, _ := w.seenByOperator()
	day := w.store.Now().UTC().AddDate(0, 0, -3).Format(time.DateOnly)
	testkit.Contains(t, text, "Revenue today 0.001 USD", day+" 13 1.050", "createAccount 1 0.990", "sendPrivateMessage 12 0.060",
		"getOwnAgent 1 0.001", "All 14 1.051")
	if strings.Contains(text, "not counted") || strings.Contains(text, "0.010 USD") {
		t.Errorf("a day is not counted, or an old payment is:\n%s", text)
	}
}

// TestOperatorPageEscapes: text of others cannot become markup, hide or turn the direction of the page, or fill it.
func TestOperatorPageEscapes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	alice.send(bob, "hello")
	hostile := "<script>alert(1)</script>\u202egnp\u0007\u200b'\"" + strings.Repeat("W", 5000)
	w.Exec(`UPDATE payments SET state = 'undeliverable', failure_reason = $1, payer = '"><img src=x>' || payer
		WHERE operation = 'sendPrivateMessage'`, hostile)
	_, html := w.seenByOperator()
	for _, bad := range []string{"<script", "<img", "\u202e", "\u0007", "\u200b", strings.Repeat("W", 100), "ZgotmplZ"} {
		if strings.Contains(html, bad) {
			t.Errorf("the operator's page contains %q", bad)
		}
	}
	testkit.Contains(t, html, "&lt;script&gt;alert(1)&lt;/script&gt;\ufffdgnp\ufffd\ufffd")
}

// TestOperatorPageHeaders: the page loads and runs nothing, no site can frame or read it, and it changes nothing.
func TestOperatorPageHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		header := w.operatorPage(method, "/").Header()
		if policy := header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") ||
			!strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: the Content-Security-Policy is %q", method, policy)
		}
		for name, want := range map[string]string{"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin"} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", method, name, got, want)
			}
		}
	}
	for _, test := range []struct {
		method, target string
		want           int
	}{
		{http.MethodPost, "/", 405}, {http.MethodDelete, "/", 405}, {http.MethodGet, "/nothing", 404},
		{http.MethodGet, "http://localhost:8404/", 200}, {http.MethodGet, "http://[::1]:8404/", 200}, {http.MethodGet, "http://10.1.2.3/", 200},
		{http.MethodGet, "http://parley:8404/", 200},
		{http.MethodGet, "http://rebound.example:8404/", 403}, {http.MethodGet, "http://127.0.0.1.rebound.example/", 403},
	} {
		if got := w.operatorPage(test.method, test.target).Code; got != test.want {
			t.Errorf("%s %s: %d, want %d", test.method, test.target, got, test.want)
		}
	}
	for target, want := range map[string]bool{"/": false, "/?refresh=30": true, "/?refresh=0": false, "/?refresh=%22%3E": false} {
		if got := strings.Contains(w.operatorPage(http.MethodGet, target).Body.String(),
			`<meta http-equiv="refresh" content="30">`); got != want {
			t.Errorf("GET %s refreshes itself: %v, want %v", target, got, want)
		}
	}
}

// TestOperatorPageWithoutDatabase: the page still comes, with the last known figures, and says what is wrong and what to do.
func TestOperatorPageWithoutDatabase(t *testing.T) {
	t.Parallel()
	direct := storetest.URL(t)
	route, over := storetest.RouteTo(t, direct)
	w := newWorldOver(t, direct, over)
	t.Cleanup(func() { route.Cut(false) })
	w.agent("alice")
	text, _ := w.seenByOperator()
	testkit.Contains(t, text, "alice", "Database ok")

	route.Cut(true)
	if !testkit.Eventually(time.Minute, func() bool { text, _ = w.seenByOperator(); return strings.Contains(text, "Last known figures") }) {
		t.Fatalf("the database is unavailable and the page does not say so:\n%s", text)
	}
	testkit.Contains(t, text, "Database: it does not respond", "Paid calls return 503 until it does", "Runbook",
		"the database does not respond",
		"alice", "requestAccount")

	route.Cut(false)
	if !testkit.Eventually(time.Minute, func() bool {
		text,
			_ = w.seenByOperator()
		return !strings.Contains(text, "Last known figures")
	}) {
		t.Errorf("the database is back and the page does not say so:\n%s", text)
	}
}

// TestOperatorPageNeverSawTheDatabase: a server that started without its database has a page, too.
func TestOperatorPageNeverSawTheDatabase(t *testing.T) {
	t.Parallel()
	route, over := storetest.RouteTo(t, storetest.URL(t))
	route.Cut(true)
	w := newWorldOver(t, storetest.URL(t), over)
	t.Cleanup(func() { route.Cut(false) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	text, _ := w.forTest(t).seenByOperator()
	testkit.Contains(t, text, "Database: it does not respond", "Revenue today –", "Open payments –")
	if ctx.Err() != nil {
		t.Error("the page came after ten seconds, want two")
	}
}

// TestOperatorPageLinks: the sections of the manual that the page links exist.
func TestOperatorPageLinks(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/run.md")
	testkit.NoError(t, err)
	anchors := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(manual), -1) {
		kept := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors[strings.ReplaceAll(kept, " ", "-")] = true
	}
	for _, name := range []string{"../../server/operator_page.go", "../../server/operator/page.html"} {
		source, err := os.ReadFile(name)
		testkit.NoError(t, err)
		found := regexp.MustCompile(`(?:\t\{"\w+", |runbook )"([^"]+)"`).FindAllStringSubmatch(string(source), -1)
		if len(found) == 0 {
			t.Errorf("%s links no section", name)
		}
		for _, link := range found {
			if !anchors[link[1]] {
				t.Errorf("%s links #%s, which docs/run.md does not have", name, link[1])
			}
		}
	}
}
