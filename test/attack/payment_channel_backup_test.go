//go:build attack

package attack

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
)

// copyDatabase replaces a database by a copy of another one. Nobody may be connected to either.
func (w *world) copyDatabase(from, to string) {
	w.T.Helper()
	address, err := url.Parse(w.DatabaseURL)
	if err != nil {
		w.T.Fatal(err)
	}
	address.Path = "/postgres"
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	connection, err := pgx.Connect(ctx, address.String())
	if err != nil {
		w.T.Fatal(err)
	}
	defer connection.Close(ctx)
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + to + " WITH (FORCE)", "CREATE DATABASE " + to + " TEMPLATE " + from} {
		if _, err := connection.Exec(ctx, statement); err != nil {
			w.T.Fatalf("%s: %v", statement, err)
		}
	}
}

// restored runs a function and then restores the database from before it, an hour ago.
func (w *channelWorld) restored(lost func()) {
	w.T.Helper()
	address, err := url.Parse(w.DatabaseURL)
	if err != nil {
		w.T.Fatal(err)
	}
	name := strings.TrimPrefix(address.Path, "/")
	w.s.kill()
	w.copyDatabase(name, name+"_backup")
	w.s.start("")
	lost()
	w.s.kill()
	w.copyDatabase(name+"_backup", name)
	w.pass(time.Hour)
	w.s.start("")
}

// TestDatabaseRestored: the database is restored from an hour ago, and what was claimed meanwhile stands on the chain. A client
// that goes on is served, at once or after a corrective 402, and no voucher that was claimed is charged again.
func TestDatabaseRestored(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	claimed, unclaimed := w.payer(w.alice), w.payer(w.bob)
	sums := map[*channelPayer]uint64{claimed: claimed.open(w.s, testkit.Dollar, 3), unclaimed: unclaimed.open(w.s, testkit.Dollar, 3)}
	before := sums[claimed]
	w.restored(func() {
		for range 3 {
			sums[claimed] += sendPrice
			w.s.pay(claimed.says("lost, but claimed", sums[claimed], 0)).Want(t, "a voucher", 200)
		}
		w.s.kill()
		w.pass(7 * time.Hour)
		w.s.start("")
		w.paidOut()
		for range 3 {
			sums[unclaimed] += sendPrice
			w.s.pay(unclaimed.says("lost", sums[unclaimed], 0)).Want(t, "a voucher", 200)
		}
	})
	for p := range sums { // as a client does that follows a corrective 402
		o := p.says("after the restore", sums[p]+sendPrice, 0)
		r := w.s.pay(o)
		for tries := 0; r.Status == http.StatusPaymentRequired && tries < 3; tries++ {
			_, state, _ := correctionOf(t, r)
			charged := uint64(0)
			if _, err := fmt.Sscan(state.ChargedCumulativeAmount, &charged); err != nil || charged < before || charged > sums[p] {
				t.Fatalf("the channel was charged %+v after the restore (%v), want from %d to %d", state, err, before, sums[p])
			}
			o = p.pays(o, charged+sendPrice, 0)
			r = w.s.pay(o)
		}
		r.Want(t, "the call after the restore", 200)
		if n := w.messages(o.content); n != 1 {
			t.Errorf("%d messages after the restore, want 1", n)
		}
		w.s.pay(w.alice.says(w.bob, "by a single payment")).Want(t, "a single payment after the restore", 200)
	}
	w.pass(7 * time.Hour)
	w.paidOut()
	for p := range sums {
		if chain := w.Ledger.Channel(p.id); chain.TotalClaimed != p.charged() {
			t.Errorf("claimed %+v of a channel that was charged %d", chain, p.charged())
		}
	}
	if got, want := claimed.charged(), sums[claimed]+sendPrice; got != want {
		t.Errorf("the channel whose lost vouchers were claimed was charged %d, want %d", got, want)
	}
}

// TestVouchersOfALostHour: the payer of a restored database sends its vouchers of the lost hour again, which were claimed meanwhile.
// Nobody would pay for what they buy now, so they buy nothing.
func TestVouchersOfALostHour(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	p := w.payer(w.alice)
	charged := p.open(w.s, testkit.Dollar, 3)
	w.s.kill()
	w.pass(7 * time.Hour)
	w.s.start("")
	w.paidOut() // so that the restored database has nothing to claim and does not look at the channel
	var vouchers []uint64
	w.restored(func() {
		for range 5 {
			charged += sendPrice
			vouchers = append(vouchers, charged)
			w.s.pay(p.says("lost, but claimed", charged, 0)).Want(t, "a voucher", 200)
		}
		w.s.kill()
		w.pass(7 * time.Hour)
		w.s.start("")
		w.paidOut()
	})
	for _, amount := range vouchers {
		o := p.says("for a voucher that is claimed", amount, 0)
		w.s.pay(o).WantRefused(t, "a voucher that was claimed", 402)
		if n := w.messages(o.content); n != 0 {
			t.Errorf("a voucher that was claimed bought %d messages", n)
		}
	}
	w.s.pay(p.says("the next voucher", charged+sendPrice, 0)).Want(t, "the next voucher", 200)
}
