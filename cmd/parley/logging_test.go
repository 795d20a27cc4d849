//go:build !noserver

package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

// logLine returns the line of the log with the message, or nil.
func (p *process) logLine(t *testing.T, message string) map[string]any {
	t.Helper()
	for line := range strings.Lines(p.logs.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("a line of the log is not JSON: %s", line)
		}
		if fields["msg"] == message {
			return fields
		}
	}
	return nil
}

// TestLifecycleInTheLog: the log tells how the server runs, and why and how it stopped.
func TestLifecycleInTheLog(t *testing.T) {
	t.Parallel()
	server, admin := serveWith(t, storetest.URL(t), "--drain-time", "300ms")
	server.Signal(syscall.SIGTERM)
	if !server.HasEnded(time.Minute) || server.Err != nil {
		t.Fatalf("it ends with %v", server.Err)
	}
	serving, stopping, stopped := server.logLine(t, "serving"), server.logLine(t, "stopping"), server.logLine(t, "stopped")
	for _, fields := range []map[string]any{serving, stopping, stopped} {
		delete(fields, "time")
		delete(fields, "level")
	}
	if took, _ := stopped["took_s"].(float64); took < 0.3 {
		t.Errorf("the server stopped in %v s, want at least its drain time", stopped["took_s"])
	}
	delete(stopped, "took_s")
	want := []map[string]any{
		{
			"msg":            "serving",
			"version":        parley.Version(),
			"listen":         strings.TrimPrefix(server.URL, "http://"),
			"admin_listen":   strings.TrimPrefix(admin, "http://"),
			"base_url":       server.URL,
			"network":        x402.NetworkBaseSepolia,
			"payee":          devnet.Payee,
			"schemes":        []any{"exact"},
			"schema_version": float64(store.SchemaVersion()),
		},
		{"msg": "stopping", "reason": "terminated signal received", "requests_running": 0.0, "drain_s": 0.3},
		{"msg": "stopped", "requests_finished": 0.0, "requests_cut_off": 0.0},
	}
	if diff := cmp.Diff(want, []map[string]any{serving, stopping, stopped}); diff != "" {
		t.Errorf("start and stop in the log (-want +got):\n%s", diff)
	}
}

// TestLogLevel: at warn the log has no lines for calls that succeed or are refused.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	server, _ := serveWith(t, storetest.URL(t), "--log-level", "warn")
	server.register(t, 2, "carol")
	server.stop(t)
	if strings.Contains(server.logs.String(), `"level":"INFO"`) {
		t.Errorf("the log at warn is\n%s", server.logs)
	}
}
