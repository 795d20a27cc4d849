package service

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestAdmin: what those who run the server see.
func TestAdmin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	alice.send(bob, "counted, not shown")
	for _, want := range []string{
		`parley_payments_total{operation="sendPrivateMessage",outcome="delivered"} 1`,
		`parley_revenue_atomic_units_total{operation="createAccount"} 1.98e+06`,
		`parley_requests_total{operation="sendPrivateMessage",status="200"} 1`, `parley_payments_open{state="undeliverable"} 0`,
		`parley_facilitator_up 1`,
	} {
		if text := w.admin("/metrics"); !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	w.CheckSecrets(t, "/metrics", w.admin("/metrics"))
	if text := w.admin("/readyz"); text != `200 {"ready":true,"database":"ok","facilitator":"ok"}`+"\n" {
		t.Errorf("readyz: %s", text)
	}
	mend := w.breakFacilitator(func(rw http.ResponseWriter, _ *http.Request) bool { testkit.HangUp(rw); return true })
	defer mend()
	time.Sleep(1100 * time.Millisecond) // what it found last counts for a second
	if text := w.admin("/readyz"); text != `200 {"ready":true,"database":"ok","facilitator":"unavailable"}`+"\n" {
		t.Errorf("readyz without a facilitator: %s", text)
	}
	w.disconnect()
	var text string
	if !testkit.Eventually(10*time.Second, func() bool { // what the database answered last counts for a second
		text = w.admin("/readyz")
		return text == `503 {"ready":false,"database":"unavailable","facilitator":"unavailable"}`+"\n"
	}) {
		t.Errorf("readyz without a database: %s", text)
	}
	if text := w.admin("/livez"); text != "200 ok\n" {
		t.Errorf("livez: %s", text)
	}
}

// TestReadyWithHangingFacilitator: a facilitator that accepts connections and does not respond does not make the server unready for a
// load balancer that waits a second.
func TestReadyWithHangingFacilitator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("alice")
	hanging := make(chan struct{})
	mend := w.breakFacilitator(func(http.ResponseWriter, *http.Request) bool { <-hanging; return true })
	defer mend()
	defer close(hanging)
	admin := httptest.NewServer(w.server.Admin())
	defer admin.Close()
	balancer := &http.Client{Timeout: 10 * time.Second}
	quick := false
	for range 3 {
		time.Sleep(1100 * time.Millisecond) // what it found last counts for a second
		began := time.Now()
		response, err := balancer.Get(admin.URL + "/readyz")
		if err != nil {
			t.Error(err)
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("/readyz returns %d", response.StatusCode)
		}
		quick = quick || time.Since(began) < time.Second // which a probe takes; a busy machine may take longer
	}
	if !quick {
		t.Error("/readyz waits for the facilitator")
	}
}

// TestMetricsWithoutDatabase: while the database is unavailable, the metrics show the last known figures, their age, and that it is
// unavailable.
func TestMetricsWithoutDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	w.agent("alice").opened(w.agent("bob"), 1)
	w.Exec(`UPDATE payments SET state = 'unknown', payload = '{}', request = '{}', created_at = now() - interval '1 hour'
		WHERE operation = 'requestAccount'`)
	figures := []string{
		`parley_payments_open{state="unknown"} 2`, `parley_payments_open{state="undeliverable"} 0`, `parley_payments_open_oldest_seconds 36`,
		`parley_unclaimed_atomic_units 5000`, `parley_payment_channels{state="open"} 1`, `parley_database_connections{state="idle"} `,
		`parley_settled_seconds{operation="createAccount"} `,
		`parley_database_connections_max `, `parley_database_waits_failed_total `, `parley_build_info{go="go`,
	}
	now := []string{
		"parley_database_up 1", "parley_facilitator_up 1", "parley_requests_running 0", "parley_connections_max 4096",
		"parley_unclaimed_max_atomic_units 0",
		`parley_batch_calls_bucket{batch="begins",le="1"} `, `parley_rpc_seconds_count{call="balance",outcome="ok"} `,
		`parley_payments_total{operation="sendPrivateMessage",outcome="undeliverable"} 0`,
		`parley_requests_total{operation="getHealth",status="500"} 0`,
		`parley_rate_limited_total{limit="tan"} 0`, `parley_payment_channel_transactions_total{kind="claim",outcome="unclear"} 0`,
		"go_sched_latencies_seconds_count ",
	}
	for _, want := range append(figures, now...) {
		if text := w.admin("/metrics"); !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	w.disconnect()
	time.Sleep(1100 * time.Millisecond)
	text := w.admin("/metrics")
	for _, want := range append(figures, "parley_database_up 0") {
		if !strings.Contains(text, want) {
			t.Errorf("without the database the metrics lack %s", want)
		}
	}
	if strings.Contains(text, "parley_ledger_counted_seconds 0.") {
		t.Errorf("the figures are more than a second old, and the metrics do not say so")
	}
}
