package client_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestPaymentChannelProcesses: so do processes.
func TestPaymentChannelProcesses(t *testing.T) {
	t.Parallel()
	if url := os.Getenv("CHANNEL_SHOP"); url != "" {
		channels := channelPayer(t, fileStore(t, os.Getenv("CHANNEL_FOLDER")))
		shop := &channelShop{t: t, Server: openChannelShop(t).Server}
		shop.URL = url
		shop.wantBuys(channels, 10)
		return
	}
	shop, folder := openChannelShop(t), t.TempDir()
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPaymentChannelProcesses$") //nolint:gosec // this test
			command.Env = append(os.Environ(), "CHANNEL_SHOP="+shop.URL, "CHANNEL_FOLDER="+folder)
			if output, err := command.CombinedOutput(); err != nil {
				t.Errorf("a process: %v\n%s", err, output)
			}
		})
	}
	group.Wait()
	shop.wantSums(30_000, 30_000)
	if n := len(shop.seen); n != 30 {
		t.Errorf("the server saw %d payments, want 30", n)
	}
}

func TestFileChannels(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "new")
	store, id := fileStore(t, folder), "0x"+strings.Repeat("a", 64)
	want := client.PaymentChannel{Network: "eip155:84532", Charged: 5, Signed: 1 << 62, Balance: 7, Pending: &client.PendingDeposit{Amount: 3}}
	testkit.NoError(t, store.Save(id, want))
	testkit.NoError(t, os.WriteFile(filepath.Join(folder, id+".json.tmp"), []byte("a crash"), 0o600))
	got, err := fileStore(t, folder).Load(id)
	if err != nil || got.Signed != want.Signed || *got.Pending != *want.Pending {
		t.Errorf("the channel is %+v, %v, want %+v", got, err, want)
	}
	if info, err := os.Stat(filepath.Join(folder, id+".json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v, want one for the owner only", info.Mode(), err)
	}
	unlock, err := store.Lock(t.Context(), id)
	testkit.NoError(t, err)
	for name, other := range map[string]*client.FileChannels{"the same store": store, "another store": fileStore(t, folder)} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := other.Lock(ctx, id); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s locks the channel too: %v", name, err)
		}
		cancel()
	}
	unlock()
	if unlock, err = fileStore(t, folder).Lock(t.Context(), id); err != nil {
		t.Errorf("the channel stays locked: %v", err)
	} else {
		unlock()
	}
	testkit.NoError(t, os.WriteFile(filepath.Join(folder, id+".json"), []byte("{"), 0o600))
	if _, err := store.Load(id); err == nil {
		t.Error("a damaged file is a channel")
	}
	for _, bad := range []string{"", "../../etc/passwd", id[:65], strings.ToUpper(id)} {
		if _, err := store.Lock(t.Context(), bad); err == nil {
			t.Errorf("%q is the id of a channel", bad)
		}
		if err := store.Save(bad, want); err == nil {
			t.Errorf("%q is the id of a channel", bad)
		}
	}
}

// TestRemovedChannelLock: a process whose lock somebody removed does not replace what the next one saved.
func TestRemovedChannelLock(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	one, two, id := fileStore(t, folder), fileStore(t, folder), "0x"+strings.Repeat("a", 64)
	for _, round := range []uint64{1, 2} {
		unlock, err := one.Lock(t.Context(), id)
		testkit.NoError(t, err)
		testkit.NoError(t, os.Remove(filepath.Join(folder, id+".lock")))
		other, err := two.Lock(t.Context(), id)
		if err == nil {
			err = two.Save(id, client.PaymentChannel{Signed: round})
		}
		testkit.NoError(t, err)
		if err := one.Save(id, client.PaymentChannel{Signed: 100}); err == nil {
			t.Error("a process without the lock saved a channel")
		}
		unlock()
		other()
		if found, err := one.Load(id); found.Signed != round || err != nil {
			t.Errorf("the channel is %+v, %v; want what the process with the lock saved", found, err)
		}
	}
}
