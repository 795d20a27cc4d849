//go:build !noserver

package main

import (
	"strings"
	"testing"

	"github.com/parley-chat/parley/store/storetest"
)

func TestSeed(t *testing.T) {
	t.Parallel()
	args := []string{"seed", "--database-url", storetest.URL(t), "--agents=10", "--conversations=20", "--messages=100", "--subscribers=10"}
	if out := invoke(t, args...).good(t); !strings.Contains(out, "made 10 agents, 14 private chats, 6 group chats, 1 channel") {
		t.Errorf("seed: %s", out)
	}
	for _, test := range []struct {
		args []string
		says string
	}{{[]string{"seed"}, "--database-url"}, {args, "already has agents"}} {
		if err := invoke(t, test.args...).err; err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v says %v, want %q", test.args, err, test.says)
		}
	}
}
