//go:build attack

package attack

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402/evm"
)

// TestAlertsFire: each alert of the rules fires while its fault lasts, and what its runbook says ends it.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	all := maps.Clone(alertCases)
	maps.Copy(all, channelAlertCases)
	names := alertNames(t)
	slices.Sort(names)
	if diff := cmp.Diff(names, slices.Sorted(maps.Keys(all))); diff != "" {
		t.Errorf("alerts of the rules and their tests (-rules +tests):\n%s", diff)
	}
	for name, test := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newAlertWorld(t, name, test)
			if w.firing() {
				t.Errorf("%s fires without its fault", name)
			}
			test.run(w)
		})
	}
}

// alertCases are the faults. Those of payment channels are in alerts_channel_test.go.
var alertCases = map[string]alertCase{
	"ParleyDown": {run: func(w *alertWorld) {
		w.s.kill()
		w.fires(nothing)
		w.s.start("")
		w.ends(nothing)
	}},
	"ParleyRestarts": {run: func(w *alertWorld) {
		w.fires(func() { w.s.restart(""); time.Sleep(time.Second) })
		w.ends(nothing)
	}},
	"ParleyDatabaseDown": {every: time.Second, run: databaseAway},
	"ParleyErrors":       {every: time.Second, run: databaseAway},
	"ParleyDatabasePoolExhausted": {every: 3 * time.Second, run: func(w *alertWorld) {
		end := w.lock("blocks")
		w.fires(func() { // each call needs a transaction, and a connection
			orders := make([]order, 60)
			for i := range orders {
				orders[i] = w.order(w.alice.wallet, w.alice.key, "/agent/block", map[string]any{"agent_id": w.bob.id})
			}
			w.s.sendAll(orders...)
		})
		end()
		w.ends(func() { w.polls(1) })
	}},
	"ParleyLedgerNotCounted": {every: 3 * time.Second,
		replace: [2]string{"parley_ledger_counted_seconds > 300", "parley_ledger_counted_seconds > 5"}, run: func(w *alertWorld) {
			end := w.lock("payments")
			w.fires(nothing)
			end()
			w.ends(nothing)
		}},
	"ParleyFacilitatorDown": {every: time.Second, run: func(w *alertWorld) {
		w.proxy.close()
		w.fires(nothing)
		w.proxy.open()
		w.ends(nothing)
	}},
	"ParleyBlockchainUnavailable": {run: func(w *alertWorld) {
		flags := w.s.flags
		w.s.flags = append(flags[:len(flags):len(flags)], "--rpc-url", "http://127.0.0.1:1/")
		w.s.restart("")
		w.fires(w.newWalletPays)
		w.s.flags = flags // with an endpoint that responds
		w.s.restart("")
		w.ends(w.newWalletPays)
	}},
	"ParleyPaymentsStuck": {replace: [2]string{"parley_payments_open_oldest_seconds) > 300", "parley_payments_open_oldest_seconds) > 3"},
		run: func(w *alertWorld) {
			w.proxy.breakWith(onSettle(dropBefore))
			w.s.pay(w.alice.says(w.bob, "settled late"))
			w.fires(nothing)
			w.proxy.mend()
			w.ends(nothing)
		}},
	"ParleyPaymentsUndeliverable": {run: undeliverable},
	"ParleyListingsLapse": {run: func(w *alertWorld) {
		w.Exec("UPDATE payments SET created_at = created_at - interval '26 days'")
		w.fires(nothing)
		w.s.agent("carol") // pays all operations that were paid before, with exact
		w.ends(nothing)
	}},
	"ParleyClockDifference": {run: func(w *alertWorld) {
		w.s.shift = 5 * time.Minute
		w.s.restart("")
		w.fires(nothing)
		w.s.shift = 0
		w.s.restart("")
		w.ends(nothing)
	}},
	"ParleySlow": {run: func(w *alertWorld) {
		w.proxy.breakWith(onSettle(delayed(6*time.Second, pass)))
		w.fires(func() {
			w.s.sendAll(w.alice.says(w.bob, "slow"), w.bob.says(w.alice, "slow"), w.alice.says(w.bob, "slow"))
		})
		w.proxy.mend()
		w.ends(func() { w.s.pay(w.alice.says(w.bob, "fast")) })
	}},
	"ParleyRateLimited": {flags: []string{"--limit-address-rate", "0.1"}, run: func(w *alertWorld) {
		w.fires(func() { w.polls(20) })
		w.ends(nothing)
	}},
	"ParleyConnectionsNearLimit": {flags: []string{"--limit-connections", "10"}, run: func(w *alertWorld) {
		hold := w.connections(9)
		w.fires(hold)
		w.s.flags = append(w.s.flags, "--limit-connections", "100")
		w.s.restart("")
		hold()
		w.ends(hold)
	}},
}

// TestAlertsDashboard: every query of the dashboard is valid and has figures of a busy server.
func TestAlertsDashboard(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	content, err := os.ReadFile("../../deploy/monitoring/dashboard.json")
	if err == nil {
		err = json.Unmarshal(content, &dashboard)
	}
	testkit.NoError(t, err)
	w := newAlertWorld(t, "", alertCase{})
	w.payer(w.alice).open(w.s, 2)
	variables := strings.NewReplacer("$job", "parley", "$instance", ".*", "$__rate_interval", "10s")
	queries := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries++
			expression := variables.Replace(target.Expr)
			if !testkit.Eventually(10*time.Second, func() bool { w.polls(2); return t.Failed() || len(w.query(expression)) > 0 }) {
				t.Errorf("%q has no figures: %s", panel.Title, expression)
			}
		}
	}
	if queries < 40 {
		t.Errorf("the dashboard has %d queries", queries)
	}
}

// databaseAway lets the database refuse connections while calls arrive.
func databaseAway(w *alertWorld) {
	away := "ALTER DATABASE DATABASE_NAME WITH ALLOW_CONNECTIONS "
	w.cluster(away+"false", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'DATABASE_NAME'")
	w.fires(func() { w.polls(5) })
	w.cluster(away + "true")
	w.ends(func() { w.polls(5) })
}

// polls makes calls at the same time, each with the payment of its own, or without one if the test limits them.
func (w *alertWorld) polls(n int) {
	w.T.Helper()
	orders := make([]order, n)
	for i := range orders {
		orders[i] = w.order(w.alice.wallet, w.alice.key, mePath, nil)
	}
	if slices.Contains(w.s.flags, "--limit-address-rate") {
		for range n {
			w.s.call(http.MethodPost, "/chat/private/send", "")
		}
		return
	}
	w.s.sendAll(orders...)
}

// newWalletPays is a call whose wallet's balance must be read from the blockchain.
func (w *alertWorld) newWalletPays() {
	w.T.Helper()
	w.s.pay(w.order(w.Wallet(testkit.Dollar), w.alice.key, mePath, nil))
}

// undeliverable takes the username of a registration while its payment settles. Its payer redeems the payment with another one.
func undeliverable(w *alertWorld) {
	o := w.order(w.Wallet(testkit.Dollar), "", "/register/request_account", map[string]any{"requested_username": "wanted"})
	w.s.restart("begun")
	_, _ = w.s.send(w.T.Context(), o) // which gets no response
	w.s.awaitEnd(15 * time.Second)
	w.Exec("INSERT INTO registrations (username, tan_hash, payer, expires_at) VALUES ($1, sha256($2), '0xsomebody', now() + interval '10 "+
		"minutes')", "wanted", []byte("wanted"))
	w.s.start("")
	w.fires(nothing)
	mended := w.order(w.Wallet(testkit.Dollar), "", "/register/request_account", map[string]any{"requested_username": "free"})
	mended.header, mended.payment = o.header, o.payment
	w.s.pay(mended).Want(w.T, "a mended request", 200)
	w.ends(nothing)
}

// connections returns a function that keeps connections open, each with a request from time to time.
func (w *alertWorld) connections(n int) (hold func()) {
	var open []net.Conn
	w.T.Cleanup(func() {
		for _, one := range open {
			_ = one.Close()
		}
	})
	return func() {
		for len(open) < n {
			one, err := net.Dial("tcp", w.s.listen)
			testkit.NoError(w.T, err)
			open = append(open, one)
		}
		open = slices.DeleteFunc(open, func(one net.Conn) bool {
			_ = one.SetDeadline(time.Now().Add(time.Second))
			if _, err := fmt.Fprintf(one, "GET /skill HTTP/1.1\r\nHost: %s\r\n\r\n", w.s.listen); err == nil {
				if _, err = one.Read(make([]byte, 16<<10)); err == nil {
					return false
				}
			}
			_ = one.Close()
			return true
		})
	}
}

// keys replaces the file of the authorizer's keys.
func (w *alertWorld) keys(lines ...string) {
	w.T.Helper()
	i := slices.Index(w.s.flags, "--authorizer-key")
	file := filepath.Join(w.T.TempDir(), "authorizer")
	testkit.NoError(w.T, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600))
	w.s.flags[i+1] = "file:" + file
	w.s.restart("")
}

func hexKey() string { return fmt.Sprintf("%x", evm.FromECDSA(testkit.NewKey())) }
