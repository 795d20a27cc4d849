//go:build !noserver

package main

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
)

// notified waits for what a server tells systemd.
func notified(t *testing.T, socket *net.UnixConn, want string) {
	t.Helper()
	message := make([]byte, 256)
	testkit.NoError(t, socket.SetReadDeadline(time.Now().Add(30*time.Second)))
	if length, err := socket.Read(message); err != nil || string(message[:length]) != want {
		t.Errorf("systemd is told %q, %v; want %q", message[:length], err, want)
	}
}

// TestSupervised: systemd hears when a server is ready and when it stops, and healthcheck says whether it is ready. A server that drains
// still serves.
func TestSupervised(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	testkit.NoError(t, err)
	defer func() { _ = socket.Close() }()
	server, adminURL := serveIn(t, []string{"NOTIFY_SOCKET=" + path}, storetest.URL(t), "--drain-time", "2s")
	admin := strings.TrimPrefix(adminURL, "http://")
	_, port, err := net.SplitHostPort(admin)
	testkit.NoError(t, err)
	notified(t, socket, "READY=1")

	check := func(listen string) string {
		ran := invoke(t, "healthcheck", "--admin-listen", listen)
		if ran.err != nil {
			return ran.err.Error()
		}
		return ran.out
	}
	if got := check(admin); !strings.HasPrefix(got, `{"ready":true`) {
		t.Errorf("healthcheck of a server that is ready: %s", got)
	}
	if got := check("0.0.0.0:" + port); !strings.HasPrefix(got, `{"ready":true`) {
		t.Errorf("healthcheck of a server that listens on all addresses: %s", got)
	}
	server.Signal(syscall.SIGTERM)
	notified(t, socket, "STOPPING=1")
	eventually(t, "healthcheck says that the server drains", func() bool {
		return strings.HasPrefix(check(admin), `the server is not ready: {"ready":false`)
	})
	if got := status(server.URL + "/health"); got != http.StatusOK {
		t.Errorf("while the server drains a call returns %d", got)
	}
	if !server.HasEnded(time.Minute) {
		t.Fatal("the server does not end")
	}
	if got := check(admin); !strings.HasPrefix(got, "the server does not respond: ") {
		t.Errorf("healthcheck without a server: %s", got)
	}
	if got, want := check(""), "--admin-listen (PARLEY_ADMIN_LISTEN) is"; !strings.HasPrefix(got, want) {
		t.Errorf("healthcheck without an address: %q, want %q…", got, want)
	}
}
