//go:build attack

package attack

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/embedded"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// insist sends an order until the reply is final, as a good client does: it comes again after a lost connection, a 503
// and "in progress".
func (s *server) insist(o order) testkit.Reply {
	s.w.T.Helper()
	var last testkit.Reply
	final := testkit.Eventually(recoveryTime, func() bool {
		r, err := s.send(s.w.T.Context(), o)
		last = r
		return err == nil && r.Status != http.StatusServiceUnavailable && r.Code != "payment_in_progress"
	})
	if !final {
		s.w.T.Errorf("%s: no final reply in %s, the last one is %v", o.id, recoveryTime, last)
	}
	return last
}

// crashOrder returns one of the calls that the crash rounds pay for in turn: a message, a group, an account, a read, a new key and a
// message paid in version 1.
func (s *server) crashOrder(alice, bob *agent, number int) order {
	s.w.T.Helper()
	switch number % 6 {
	case 1:
		return s.w.order(alice.wallet, alice.key, "/chat/group/create", map[string]any{"name": fmt.Sprintf("Group %d", number)})
	case 2:
		newcomer := &agent{w: s.w, name: fmt.Sprintf("newcomer_%d", contentNumber.Add(1)), wallet: alice.wallet}
		return newcomer.creates(s)
	case 3:
		return s.w.order(alice.wallet, alice.key, "/agent/me", nil)
	case 4:
		return s.w.order(alice.wallet, alice.key, "/agent/rotate_key", map[string]any{})
	case 5:
		return alice.says(bob, "through a crash").asV1(s.w)
	default:
		return alice.says(bob, "through a crash")
	}
}

// crashes lets a server die at points, one life each, the first with an order.
func (s *server) crashes(o order, points ...string) {
	s.w.T.Helper()
	s.restart(points[0])
	// The caller of a payment that was replied before the point has its reply already.
	_, _ = s.send(s.w.T.Context(), o)
	s.awaitEnd(15 * time.Second)
	if !s.died() {
		s.w.T.Fatalf("the server ended otherwise than by the crash at %s:\n%s", points[0], lastLines(s.output.String(), 20))
	}
	for _, point := range points[1:] {
		s.start(point)
		s.awaitEnd(15 * time.Second)
	}
}

// TestKilledAtEveryStep kills the server with SIGKILL at each step of a payment's way and starts it again. In half of the
// rounds the caller sends the same payment again, in the other half nobody does. Money and effect are there once, or
// neither is.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for number, test := range []struct {
		points string // one life each, the first with the request
		begun  bool   // the payment is in the ledger, so that it is finished without its caller
	}{
		{"parsed", false}, {"dry-run", false}, {"begun", true}, {"settled", true}, {"committing", true}, {"delivered", true},
		{"begun, claimed", true}, {"begun, resettled", true}, {"begun, claimed, resettled", true},
		{"settled, committing", true}, // the chain says that it has settled
		{"begun, committing", true}, {"begun, delivered", true},
	} {
		t.Run(test.points, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.serve()
			alice, bob := s.agent("alice"), s.agent("bob")
			for round := range rounds(t) {
				o := s.crashOrder(alice, bob, number+round/2)
				w.check() // nothing else is open, so that the crash is this order's
				revenue := w.Revenue()
				s.crashes(o, strings.Split(test.points, ", ")...)
				s.start("")
				paid := test.begun
				if round%2 == 0 {
					paid = true
					s.insist(o).Want(t, fmt.Sprintf("round %d, %s sent again", round, o.id), 200)
				}
				w.check()
				want := map[bool]string{true: "delivered", false: ""}[paid]
				if got := w.state(o); got != want {
					t.Errorf("round %d: %s is %q, want %q", round, o.id, got, want)
				}
				if charged := w.Revenue() - revenue; (charged == o.price) != paid || !paid && charged != 0 {
					t.Errorf("round %d: %s charged %d, want it paid: %v", round, o.id, charged, paid)
				}
				if o.content != "" && (w.messages(o.content) == 1) != paid {
					t.Errorf("round %d: the message is there %d times, want it there: %v", round, w.messages(o.content), paid)
				}
				if o.id == "rotateKey" && paid { // the new key is in the reply, and nobody has heard it yet
					alice.learn(s.insist(o))
				}
				if t.Failed() {
					return // what follows would only repeat it
				}
			}
		})
	}
}

// TestSecretsAfterAKill: the server dies while it settles a payment whose response holds a secret. Its owner gets the response, charged
// once, with the payment identifier or with a fresh payment of the same wallet. Whoever has read the payment on the chain gets nothing.
func TestSecretsAfterAKill(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"begun", "settled", "committing", "delivered"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.serve()
			s.secretsAfterAKill(point, "identified", func(*x402.PaymentPayload) {}, func(_ *ecdsa.PrivateKey, o order) order { return o })
			s.secretsAfterAKill(point, "signed_anew", unnamed, func(wallet *ecdsa.PrivateKey, o order) order {
				o.header, o.payment = w.sign(wallet, o.path)
				return o
			})
		})
	}
}

// secretsAfterAKill lets the server die at a point of each order whose response holds a secret. Again is the order with which the owner
// comes back.
func (s *server) secretsAfterAKill(point, name string, change func(*x402.PaymentPayload), again func(*ecdsa.PrivateKey, order) order) {
	w, t := s.w, s.w.T
	t.Helper()
	owner := s.agent("owner_" + name)
	newcomer := &agent{w: w, name: "created_" + name, wallet: w.Wallet(testkit.Dollar)}
	create := newcomer.creates(s)
	var account map[string]any
	if err := json.Unmarshal([]byte(create.body), &account); err != nil {
		t.Fatal(err)
	}
	wallet := w.Wallet(10 * testkit.Dollar)
	for _, o := range []order{
		w.order(wallet, "", "/register/request_account", map[string]any{"requested_username": "requested_" + name}, change),
		w.order(wallet, "", "/register/create_account", account, change),
		w.order(wallet, owner.key, "/agent/rotate_key", map[string]any{}, change),
	} {
		w.check() // nothing else is open, so that the crash is this order's
		revenue := w.Revenue()
		s.crashes(o, point)
		s.start("")
		stranger := o
		stranger.header = w.Encode(&x402.PaymentPayload{X402Version: x402.Version, Accepted: o.payment.Accepted, Payload: o.payment.Payload})
		opensNothing := func(when string) {
			if r := s.pay(stranger); r.Status == http.StatusOK || r.Text("tan")+r.Text("api_key") != "" {
				t.Errorf("%s killed at %s: a stranger who replays the payment %s gets %v", o.id, point, when, r)
			}
		}
		opensNothing("at once")
		r := s.insist(again(wallet, o))
		secret := r.Text("tan") + r.Text("api_key")
		if r.Status != http.StatusOK || secret == "" {
			t.Errorf("%s killed at %s: its owner comes again and gets %v, want 200 with the secret", o.id, point, r)
			return
		}
		w.Secret(secret)
		opensNothing("after that")
		w.check()
		if charged := w.Revenue() - revenue; charged != o.price {
			t.Errorf("%s killed at %s: charged %d in all, want %d", o.id, point, charged, o.price)
		}
	}
}

// TestDatabaseKilled ends PostgreSQL between settlement and commit without a checkpoint, and starts it again. The server
// must go on by itself, and the effect be there once.
func TestDatabaseKilled(t *testing.T) {
	t.Parallel()
	folder, err := os.MkdirTemp("", "parley-attack-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	database := startDatabase(t, folder)
	t.Cleanup(func() { _ = database.Stop() }) // the one that runs then
	migrated, err := store.Open(t.Context(), database.URL("postgres"), store.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = migrated.Migrate(t.Context(), nil)
	migrated.Close()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldOn(t, database.URL("postgres"))
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	for round := range max(2, rounds(t)/5) {
		o := alice.says(bob, "while the database died")
		r := w.proxy.whileSettling(t, true, func(ctx context.Context) (testkit.Reply, error) { return s.send(ctx, o) },
			func() { killDatabase(t, database) })
		if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
			t.Errorf("settled without a database: %v, want 503 with Retry-After", r)
		}
		s.call(http.MethodPost, o.path, "").Want(t, "the price without a database", 402)
		_ = database.Stop() // gives the folder free
		database = startDatabase(t, folder)
		if database.URL("postgres") != w.DatabaseURL {
			t.Fatal("the database came back at another address")
		}
		if round%2 == 0 {
			s.insist(o).Want(t, "sent again", 200)
		}
		w.check()
		w.arrivedOnce(o)
		s.insist(alice.says(bob, "after the database came back")).Want(t, "the next payment", 200)
	}
	w.check()
}

func startDatabase(t *testing.T, folder string) *embedded.Server {
	t.Helper()
	database, err := embedded.Start(t.Context(), embedded.Options{Folder: folder, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	return database
}

// killDatabase ends PostgreSQL as `pg_ctl stop -m immediate` does: its processes end at once and write nothing any more, so that the next
// start recovers from the log.
func killDatabase(t *testing.T, database *embedded.Server) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(database.Folder(), "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(content), "\n")
	postmaster, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || postmaster < 2 {
		t.Fatalf("postmaster.pid begins with %q", first)
	}
	if err := syscall.Kill(postmaster, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	// It ends after its other processes, which could still commit.
	if !testkit.Eventually(20*time.Second, func() bool { return errors.Is(syscall.Kill(postmaster, 0), syscall.ESRCH) }) {
		t.Fatal("PostgreSQL does not end")
	}
}
