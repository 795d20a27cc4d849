//go:build !noserver

package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

// status returns the status of a GET, or 0 if nobody listens.
func status(address string) int {
	response, err := http.Get(address)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 seconds: %s", what)
		}
	}
}

// serveWith starts a server with an admin listener, and returns its URL and that of the admin listener.
func serveWith(t *testing.T, databaseURL string, arguments ...string) (server *process, admin string) {
	t.Helper()
	return serveIn(t, nil, databaseURL, arguments...)
}

// serveIn is serveWith in an environment.
func serveIn(t *testing.T, env []string, databaseURL string, arguments ...string) (server *process, admin string) {
	t.Helper()
	play := playNetwork(t)
	admin = testkit.FreeAddress(t)
	arguments = append(
		[]string{"serve", "--facilitator-url", play.URL, "--rpc-url", play.URL + "/rpc", "--listen", testkit.FreeAddress(t), "--admin-listen",
			admin},
		arguments...)
	env = append(env, "PARLEY_DATABASE_URL="+databaseURL, "PARLEY_PAYEE="+devnet.Payee, "PARLEY_NETWORK="+x402.NetworkBaseSepolia)
	server = start(t, env, arguments...)
	return server, "http://" + admin
}

// TestSecondSignal: a second SIGTERM ends the server at once.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	server, admin := serveWith(t, storetest.URL(t), "--drain-time", "1m")
	server.Signal(syscall.SIGTERM)
	eventually(t, "/readyz returns 503", func() bool { return status(admin+"/readyz") == http.StatusServiceUnavailable })
	eventually(t, "it ends at once", func() bool { // not if the second signal comes with the first one: see secondSignal
		server.Signal(syscall.SIGTERM)
		return server.HasEnded(secondSignal)
	})
	if server.Err == nil {
		t.Error("it ended in order")
	}
}

// TestDatabaseAwayAtBoot: a server starts without its database, says so, and serves when the database is there.
func TestDatabaseAwayAtBoot(t *testing.T) {
	t.Parallel()
	route, databaseURL := storetest.RouteTo(t, storetest.URL(t))
	route.Cut(true)
	server, admin := serveWith(t, databaseURL)
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/livez": http.StatusOK} {
		if got := status(admin + path); got != want {
			t.Errorf("%s returns %d, want %d", path, got, want)
		}
	}
	if got := status(server.URL + "/agent/me"); got != http.StatusPaymentRequired {
		t.Errorf("a price inquiry returns %d", got)
	}
	route.Cut(false)
	eventually(t, "/readyz returns 200", func() bool { return status(admin+"/readyz") == http.StatusOK })
	server.register(t, 2, "carol")
}

// TestOldSchemaAfterBoot: a server that started without its database ends when the schema turns out to be older than the program.
func TestOldSchemaAfterBoot(t *testing.T) {
	t.Parallel()
	direct := storetest.URL(t)
	testkit.NoError(t, execute(direct, "DROP SCHEMA public CASCADE; CREATE SCHEMA public"))
	route, databaseURL := storetest.RouteTo(t, direct)
	route.Cut(true)
	server, _ := serveWith(t, databaseURL)
	route.Cut(false)
	if !server.HasEnded(time.Minute) || server.Err == nil || !strings.Contains(server.logs.String(), "run parley migrate first") {
		t.Errorf("it ends with %v\n%s", server.Err, server.logs)
	}
}
