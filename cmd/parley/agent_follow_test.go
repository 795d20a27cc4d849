//go:build !noserver

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestFollowWakes: messages wake a command, once for all that came together, and no text reaches a command line. A command that fails is
// run again, and its messages are not confirmed: they come again, free.
func TestFollowWakes(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice, bob := newAgent(t, server.URL, "alice"), newAgent(t, server.URL, "bob")
	alice.run("send", "bob", "one $(touch pwned)")
	alice.run("send", "bob", "two")
	for _, test := range []struct{ exec, told, paid string }{
		{`echo failed >>"$WOKEN"; [ $(wc -l <"$WOKEN") -ge 2 ] && echo "2 from alice alice" >>"$WOKEN"; false`,
			"--exec: exit status 1; again in 2s", "0.001"},
		{`cat >"$WOKEN"; echo "$PARLEY_MESSAGES from $PARLEY_FROM" >>"$WOKEN"`, "", "0.00"}, // again, free
	} {
		woken := filepath.Join(t.TempDir(), "woken")
		follow := bob.command("inbox", "--follow", "--exec", test.exec)
		follow.Env = append(follow.Env, "WOKEN="+woken)
		errs := &testkit.Buffer{}
		follow.Stderr = errs
		testkit.NoError(t, follow.Start())
		var got []byte
		if !testkit.Eventually(30*time.Second, func() bool {
			got, _ = os.ReadFile(woken)
			return strings.HasSuffix(string(got), "2 from alice alice\n") && strings.Contains(errs.String(), test.told)
		}) {
			t.Errorf("the command does not get the messages: %s %s", got, errs)
		}
		if test.paid == "0.00" {
			testkit.Contains(t, string(got), `one $(touch pwned)`, `"content":"two"`)
		}
		testkit.NoError(t, follow.Process.Signal(os.Interrupt))
		if err := follow.Wait(); err != nil || strings.Contains(errs.String(), "interrupted") {
			t.Errorf("it ended with %v: %s", err, errs)
		}
	}
	sent := []string{"send", "alice", "three", "--jq"}
	if got := bob.fails(agent.ExitUsage, append(sent, ".message|test(1)")...); got["charged"] != true ||
		!strings.Contains(got["error"].(string), "the call was made") {
		t.Errorf("a call whose output failed: %v", got)
	}
	if again := bob.run(append(sent, ".")...); again["paid_usd"] != "0.00" || again["earlier"] != true {
		t.Errorf("the same command again: %v", again)
	}
}
