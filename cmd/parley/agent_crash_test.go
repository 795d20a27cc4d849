//go:build !noserver

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestKillBetweenPaymentAndOutput: a command that paid and was killed before it could print returns the response at the next run, and
// the message was sent once.
func TestKillBetweenPaymentAndOutput(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice, bob := newAgent(t, server.URL, "alice"), newAgent(t, server.URL, "bob")

	reader, writer, err := os.Pipe()
	testkit.NoError(t, err)
	// Nobody reads: the write ends when the pipe is full.
	testkit.NoError(t, writer.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	if _, err := writer.Write(make([]byte, 4<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("fill the pipe: %v", err)
	}
	send := alice.command("send", "bob", "once")
	send.Stdout = writer
	testkit.NoError(t, send.Start())
	paid := testkit.Eventually(20*time.Second, func() bool {
		return len(alice.rows("SELECT call FROM responses WHERE operation = 'sendPrivateMessage'")) == 1
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
	if inbox := bob.run("inbox"); len(texts(inbox)) != 1 {
		t.Errorf("bob has %q, want one message", texts(inbox))
	}
	if third := alice.run("send", "bob", "once"); third["earlier"] != nil || third["message_id"] == again["message_id"] {
		t.Errorf("after its output was seen the same command is a new one: %v", third)
	}
}

// TestNextCommandFinishes: the next command that pays finishes the payment of one that was killed while the server was silent.
func TestNextCommandFinishes(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice, bob := newAgent(t, server.URL, "alice"), newAgent(t, server.URL, "bob")
	alice.run("who", "bob")
	open := func() int { return len(alice.openPayments()) }
	server.Signal(syscall.SIGSTOP)
	send := alice.command("send", "bob", "sent by another command")
	testkit.NoError(t, send.Start())
	signed := testkit.Eventually(10*time.Second, func() bool { return open() == 1 })
	_ = send.Process.Kill()
	_ = send.Wait()
	server.Signal(syscall.SIGCONT)
	if !signed {
		t.Fatal("no payment was stored")
	}
	if profile := alice.run("profile"); profile["paid_usd"] != "0.001" || open() != 0 {
		t.Errorf("after another command %d payments are open; it returned %v", open(), profile)
	}
	if got := texts(bob.run("inbox")); len(got) != 1 {
		t.Errorf("bob has %q, want one message", got)
	}
	if again := alice.run("send", "bob", "sent by another command"); again["earlier"] != true || again["paid_usd"] != "0.00" {
		t.Errorf("the same command makes another call: %v", again)
	}
}

// TestSentTwiceAtOnce: of two equal commands that run at the same time one pays, and the other one returns its result.
func TestSentTwiceAtOnce(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice, bob := newAgent(t, server.URL, "alice"), newAgent(t, server.URL, "bob")
	alice.run("who", "bob")
	server.Signal(syscall.SIGSTOP)
	var outputs [2]testkit.Buffer
	var sends [2]*exec.Cmd
	for i := range sends {
		sends[i] = alice.command("send", "bob", "once")
		sends[i].Stdout = &outputs[i]
		testkit.NoError(t, sends[i].Start())
	}
	signed := testkit.Eventually(20*time.Second, func() bool { return len(alice.openPayments()) > 0 })
	time.Sleep(5 * time.Second) // the other command begins meanwhile
	server.Signal(syscall.SIGCONT)
	for _, send := range sends {
		if err := send.Wait(); err != nil || !signed {
			t.Errorf("a command ended with %v; a payment was signed: %v", err, signed)
		}
	}
	both := outputs[0].String() + outputs[1].String()
	if strings.Count(both, `"earlier":true`) != 1 || strings.Count(both, `"paid_usd":"0.00"`) != 1 ||
		strings.Count(both, `"paid_usd":"0.005"`) != 1 {
		t.Errorf("the commands returned\n%s", both)
	}
	if got := texts(bob.run("inbox")); len(got) != 1 {
		t.Errorf("bob has %q, want one message", got)
	}
}

// TestKilledInit: init that is killed at any step goes on at the next run, with the same wallet.
func TestKilledInit(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice := newUser(t, server.URL)
	for delay := 20 * time.Millisecond; delay < 400*time.Millisecond; delay += 30 * time.Millisecond {
		killed := alice.command("init", "--username", "alice", "--yes")
		testkit.NoError(t, killed.Start())
		time.Sleep(delay)
		_ = killed.Process.Kill()
		_ = killed.Wait()
	}
	alice.run("init", "--username", "alice", "--yes")
	if own := alice.run("profile"); own["username"] != "alice" {
		t.Errorf("the account is %v", own)
	}
	if wallets, err := filepath.Glob(filepath.Join(alice.home, "wallets", "*")); err != nil || len(wallets) != 1 {
		t.Errorf("there are the wallets %v, %v", wallets, err)
	}
	costs, _ := alice.run("wallet", "report")["costs"].([]any)
	paid := map[string]any{}
	for _, cost := range costs {
		row, _ := cost.(map[string]any)
		operation, _ := row["operation"].(string)
		paid[operation] = row["charged_usd"]
	}
	if paid["createAccount"] != "0.99" || paid["requestAccount"] != "0.01" {
		t.Errorf("the account cost %v", paid)
	}
}
