//go:build !noserver

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestKillBetweenPaymentAndOutput: a command that paid and was killed before it could print returns the response at the next run, and
// the message was sent once.
func TestKillBetweenPaymentAndOutput(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice, bob := newUser(t, server.URL), newUser(t, server.URL)
	bob.run("init", "--username", "bob", "--yes")
	alice.run("init", "--username", "alice", "--yes")

	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = writer.Write(make([]byte, 4<<20)) }() // fills the pipe: nobody reads
	time.Sleep(100 * time.Millisecond)
	send := alice.command("send", "bob", "once")
	send.Stdout = writer
	if err := send.Start(); err != nil {
		t.Fatal(err)
	}
	spool, err := filepath.Glob(filepath.Join(alice.home, "wallets", "*", "spool.jsonl"))
	if err != nil || len(spool) != 1 {
		t.Fatalf("the local copies are %v, %v", spool, err)
	}
	paid := testkit.Eventually(20*time.Second, func() bool {
		content, err := os.ReadFile(spool[0])
		return err == nil && strings.Contains(string(content), "sendPrivateMessage")
	})
	_ = send.Process.Kill()
	_ = send.Wait()
	_, _ = reader.Close(), writer.Close()
	if !paid {
		t.Fatal("the message was not sent")
	}
	again := alice.run("send", "bob", "once")
	if again["earlier"] != true || again["paid_usd"] != "0.00" {
		t.Errorf("the same command returned %v, want the earlier response for nothing", again)
	}
	if inbox := bob.run("inbox", "--strangers"); len(texts(inbox)) != 1 {
		t.Errorf("bob has %q, want one message", texts(inbox))
	}
	if third := alice.run("send", "bob", "once"); third["earlier"] != nil || third["message_id"] == again["message_id"] {
		t.Errorf("after its output was seen the same command is a new one: %v", third)
	}
}
