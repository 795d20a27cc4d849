//go:build !noserver

package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
)

// devCommand runs parley dev backup or restore.
func devCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, errs bytes.Buffer
	err := run(t.Context(), append([]string{"dev"}, args...), console{&out, &errs})
	return out.String(), err
}

func wantDevError(t *testing.T, says string, args ...string) {
	t.Helper()
	if out, err := devCommand(t, args...); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("dev %s: %v %s, want an error that says %q", strings.Join(args, " "), err, out, says)
	}
}

// TestDevBackup: a backup of dev holds accounts, messages, balances and payment channels, and another folder goes on from there. Nothing
// is backed up while dev runs, and nothing is overwritten.
func TestDevBackup(t *testing.T) {
	t.Parallel()
	data, other, file := folder(t), folder(t), filepath.Join(t.TempDir(), "dev.tar.gz")
	args := []string{"dev", "--listen", "127.0.0.1:0", "--facilitator-listen", "127.0.0.1:0", "--data"}
	wantDevError(t, "has no database", "backup", file, "--data", folder(t))
	first := start(t, nil, append(args, data)...)
	bob := first.register(t, 1, "bob")
	bob.SetID(t)
	channels := &client.MemoryChannels{}
	wallet := first.agent(t, 2).Wallet
	carol := testkit.NewAgent(t, first.URL, wallet, testkit.Sparing, nil, channels)
	carol.Register(t, "carol")
	sent, err := carol.SendPrivateMessageWithResponse(t.Context(), client.SendPrivateMessageRequest{RecipientAgentID: bob.ID, Content: "in the backup"})
	testkit.Require200(t, "carol writes", sent, err)
	payee := first.balance(t, devnet.Payee)
	wantDevError(t, "another parley process uses", "backup", file, "--data", data)
	first.stop(t)

	if out, err := devCommand(t, "backup", file, "--data", data); err != nil || !strings.Contains(out, "wrote "+file) {
		t.Fatalf("backup: %v %s", err, out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup, which has keys: %v, %v, want it for its owner only", info.Mode(), err)
	}
	wantDevError(t, "exists: give the name of a new file", "backup", file, "--data", data)
	wantDevError(t, "has data already", "restore", file, "--data", data)
	if out, err := devCommand(t, "restore", file, "--data", other); err != nil {
		t.Fatalf("restore: %v %s", err, out)
	}
	for _, name := range []string{devAuthorizerKey, devResponseKey} {
		if key, err := os.ReadFile(filepath.Join(data, name)); err != nil {
			t.Error(err)
		} else if copied, err := os.ReadFile(filepath.Join(other, name)); err != nil || !bytes.Equal(key, copied) {
			t.Errorf("the restored %s is another one: %v", name, err)
		}
	}
	second := start(t, nil, append(args, other)...)
	if got := second.balance(t, devnet.Payee); got != payee {
		t.Errorf("the payee has %s, want %s", got, payee)
	}
	again := second.agent(t, 1)
	again.Key = bob.Key
	read, err := again.ListPrivateMessagesWithResponse(t.Context(), client.ListPrivateMessagesRequest{ChatID: sent.JSON200.ChatID})
	if err != nil || read.JSON200 == nil || len(read.JSON200.Messages) != 1 || read.JSON200.Messages[0].Content != "in the backup" {
		t.Errorf("bob reads %v %s", err, read.Body)
	}
	charged := second.balance(t, testkit.Address(wallet))
	goesOn := testkit.NewAgent(t, second.URL, wallet, testkit.Sparing, nil, channels)
	goesOn.Key = carol.Key
	more, err := goesOn.SendPrivateMessageWithResponse(t.Context(), client.SendPrivateMessageRequest{RecipientAgentID: bob.ID, Content: "from the same payment channel"})
	testkit.Require200(t, "carol writes from her payment channel", more, err)
	if got := second.balance(t, testkit.Address(wallet)); got != charged {
		t.Errorf("carol's wallet has %s, want %s: her payment channel pays", got, charged)
	}
	second.stop(t)
}

// TestDevRestoreRefuses: a file that is no backup leaves no data.
func TestDevRestoreRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		write func(archive *tar.Writer) error
		says  string
	}{
		"nothing in it": {func(*tar.Writer) error { return nil }, "no PostgreSQL cluster"},
		"outside":       {func(a *tar.Writer) error { return addFile(a, os.Args[0], "postgres/../../outside") }, "escapes"},
		"a symbolic link": {func(a *tar.Writer) error {
			return a.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "postgres/x", Linkname: "/etc"})
		}, "neither a file nor a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, data := filepath.Join(t.TempDir(), "backup"), folder(t)
			if _, err := writeArchive(file, test.write); err != nil {
				t.Fatal(err)
			}
			wantDevError(t, test.says, "restore", file, "--data", data)
			if _, err := os.Stat(filepath.Join(data, "postgres", "data")); err == nil {
				t.Error("there is a cluster")
			}
		})
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantDevError(t, "no backup of `parley dev`", "restore", text, "--data", folder(t))
}
