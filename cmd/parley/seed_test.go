//go:build !noserver

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/store/storetest"
)

func TestSeed(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	to := console.Console{Out: &out, Err: &errs}
	if err := run(t.Context(), []string{"seed"}, to); err == nil || !strings.Contains(err.Error(), "--database-url") {
		t.Errorf("seed without a database says %q", err)
	}
	args := []string{"seed", "--database-url", storetest.URL(t), "--agents=10", "--conversations=20", "--messages=100", "--subscribers=10"}
	if err := run(t.Context(), args, to); err != nil || !strings.Contains(out.String(), "made 10 agents, 14 private chats, 6 group chats, 1 channel") {
		t.Errorf("seed: %v, %s", err, out.String())
	}
	if err := run(t.Context(), args, to); err == nil || !strings.Contains(err.Error(), "already has agents") {
		t.Errorf("seed a second time says %q", err)
	}
}
