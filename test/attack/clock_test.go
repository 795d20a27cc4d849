//go:build attack

package attack

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// clockWorld has two servers whose clocks are wrong. The clocks of the database, the chain and the payers are right.
type clockWorld struct {
	*world
	ahead, behind *server
	began         time.Time // on the database's clock
}

const wrongBy = 5 * time.Minute

func newClockWorld(t testing.TB) *clockWorld {
	t.Helper()
	w := &clockWorld{world: newWorld(t)}
	w.began = w.now()
	shifted := func(by time.Duration) *server {
		s := w.newServer(w.channelFlags()...)
		s.shift = by
		s.start("")
		return s
	}
	w.ahead, w.behind = shifted(wrongBy), shifted(-wrongBy)
	w.s = w.ahead
	w.alice, w.bob = w.ahead.agent("alice"), w.behind.agent("bob")
	for _, s := range w.servers { // else the tests show nothing
		if got := differenceAt(t, s.admin); math.Abs(got-s.shift.Seconds()) > 2 {
			t.Fatalf("parley_clock_difference_seconds is %v, want %v", got, s.shift.Seconds())
		}
	}
	return w
}

// now is the database's time.
func (w *clockWorld) now() (now time.Time) {
	w.T.Helper()
	w.Scan("SELECT clock_timestamp()", nil, &now)
	return now
}

var differenceLine = regexp.MustCompile(`(?m)^parley_clock_difference_seconds (\S+)$`)

func differenceAt(t testing.TB, admin string) float64 {
	t.Helper()
	r, err := testkit.Request(t.Context(), http.DefaultClient, http.MethodGet, "http://"+admin+"/metrics", "")
	found := differenceLine.FindSubmatch(r.Body)
	if err != nil || found == nil {
		t.Fatalf("there is no metric parley_clock_difference_seconds (%v)", err)
	}
	difference, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return difference
}

// within sets the validity of a payment, in seconds from now.
func within(after, before int64) func(*x402.PaymentPayload) {
	return func(p *x402.PaymentPayload) {
		now := time.Now().Unix()
		p.Payload.Authorization.ValidAfter = strconv.FormatInt(now+after, 10)
		p.Payload.Authorization.ValidBefore = strconv.FormatInt(now+before, 10)
	}
}

// TestWrongClocksAndPayments: servers with wrong clocks take payments whose validity is a minute, deposits and vouchers, and refuse
// payments that are not valid yet or no more, without asking the facilitator.
func TestWrongClocksAndPayments(t *testing.T) {
	t.Parallel()
	w := newClockWorld(t)
	for name, s := range map[string]*server{"ahead": w.ahead, "behind": w.behind} {
		s.pay(w.alice.says(w.bob, "valid for a minute", within(-1, 60))).Want(t, "a payment at the server whose clock is "+name, 200)
		p := w.payer(w.alice)
		// The signer's deposits are valid for a minute from its time.
		charged := p.open(s, 3)
		s.pay(p.refund(charged, 0)).Want(t, "a refund at the server whose clock is "+name, 204)

		asked := w.proxy.asked()
		refused := func(o order, reason string) {
			t.Helper()
			r := s.pay(o)
			if r.Status != http.StatusPaymentRequired || w.state(o) != "" {
				t.Errorf("the server whose clock is %s: %v, want a 402 with %s", name, r, reason)
				return
			}
			if required, err := x402.DecodePaymentRequired(r.Header.Get(x402.HeaderPaymentRequired)); err != nil || required.Error != reason {
				t.Errorf("the server whose clock is %s refuses with %+v (%v), want %s", name, required, err, reason)
			}
		}
		refused(w.alice.says(w.bob, "expired", within(-120, -60)), x402.ReasonValidBefore)
		refused(w.alice.says(w.bob, "valid later", within(60, 120)), x402.ReasonValidAfter)
		if n := w.proxy.asked() - asked; n != 0 {
			t.Errorf("the server whose clock is %s asked the facilitator %d times about payments that are out of time", name, n)
		}
	}
	w.paidOut()
	w.check()
	for _, s := range []*server{w.ahead, w.behind} {
		if n := strings.Count(s.output.String(), "the clocks of this machine and of the database differ"); n != 1 {
			t.Errorf("the log has %d warnings that the clock is wrong, want one", n)
		}
	}
}

// TestWrongClocksAndTANs: a TAN works at either server, and ends at the database's time.
func TestWrongClocksAndTANs(t *testing.T) {
	t.Parallel()
	w := newClockWorld(t)
	for i, pair := range [][2]*server{{w.ahead, w.behind}, {w.behind, w.ahead}} {
		newcomer := &agent{w: w.world, name: fmt.Sprintf("newcomer_%d", i), wallet: w.alice.wallet}
		create := newcomer.creates(pair[0])
		var left time.Duration
		w.Scan("SELECT expires_at - clock_timestamp() FROM registrations WHERE username = $1", []any{newcomer.name}, &left)
		if left > 10*time.Minute || left < 9*time.Minute {
			t.Errorf("a TAN lives for %s more, want ten minutes", left)
		}
		pair[1].pay(create).Want(t, "a TAN of the other server", 200)

		late := &agent{w: w.world, name: fmt.Sprintf("late_%d", i), wallet: w.alice.wallet}
		create = late.creates(pair[0])
		w.Exec("UPDATE registrations SET expires_at = clock_timestamp() WHERE username = $1", late.name)
		for _, s := range pair {
			s.pay(create).Want(t, "a TAN that has expired", 403, "invalid_tan")
		}
	}
	w.check()
}

// TestWrongClocksAndTimes: whatever the two servers write has the database's time. Within a conversation times never go back, and
// numbers have no gaps.
func TestWrongClocksAndTimes(t *testing.T) {
	t.Parallel()
	w := newClockWorld(t)
	servers := []*server{w.ahead, w.behind}
	group := w.ahead.pay(w.order(w.alice.wallet, w.alice.key, "/chat/group/create", map[string]any{"name": "Clocks"})).Field(t, "chat_id")
	edit := func(s *server, field string) {
		t.Helper()
		s.pay(w.order(w.alice.wallet, w.alice.key, "/chat/group/edit", map[string]any{"chat_id": group, field: []string{w.bob.id}})).
			Want(t, field, 200)
	}
	edit(w.behind, "add_member_ids")
	payers := map[*server]*channelPayer{w.ahead: w.payer(w.alice), w.behind: w.payer(w.bob)}
	var sending sync.WaitGroup
	for s, p := range payers { // both at once, each to the same private chat and group chat
		sending.Go(func() {
			charged := p.open(s, 2+rounds(t))
			for range rounds(t) {
				content := w.content("to the group")
				charged += operations["/chat/group/send"].price
				o := w.order(p.agent.wallet, p.agent.key, "/chat/group/send", map[string]any{"chat_id": group, "content": content})
				o.content = content
				s.insist(p.pays(o, charged, 0)).Want(t, "a message to the group", 200)
			}
		})
	}
	for i := range rounds(t) {
		servers[i%2].insist(w.alice.says(w.bob, "in turn")).Want(t, "a message", 200)
	}
	sending.Wait()
	edit(w.behind, "ban_agent_ids")
	w.behind.pay(w.order(w.alice.wallet, w.alice.key, "/chat/group/delete", map[string]any{"chat_id": group})).Want(t, "delete", 200)
	if n := w.Count("SELECT count(*) FROM notices"); n == 0 {
		t.Errorf("there is no notice of the ban")
	}
	w.timesAreTheDatabases()
	for what, wrong := range map[string]string{
		"messages are older than those before them": `SELECT count(*) FROM messages m JOIN messages o ON o.conversation_id = m.conversation_id
			AND o.number = m.number - 1 WHERE m.created_at < o.created_at`,
		"conversations have gaps in their numbers": `SELECT count(*) FROM (SELECT FROM messages GROUP BY conversation_id
			HAVING max(number) <> count(*)) gaps`,
	} {
		if n := w.Count(wrong); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	w.check()
}

// timesAreTheDatabases checks that no time in the database is from before the test or in the future.
func (w *clockWorld) timesAreTheDatabases() {
	w.T.Helper()
	const exact = time.Second // of what a server knows about the database's clock
	var columns []string
	w.EachRow(func(row pgx.Rows) error {
		var column string
		err := row.Scan(&column)
		columns = append(columns, column)
		return err
	}, `SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'public'
		AND table_name <> 'goose_db_version'
		AND data_type = 'timestamp with time zone' AND column_name NOT IN ('valid_before', 'lease_until', 'expires_at', 'claim_after')`)
	if !slices.Contains(columns, "conversations.deleted_at") || len(columns) < 10 {
		w.T.Fatalf("the columns with times are %v", columns)
	}
	for _, column := range columns {
		table, name, _ := strings.Cut(column, ".")
		var earliest, latest *time.Time
		w.Scan("SELECT min("+name+"), max("+name+") FROM "+table, nil, &earliest, &latest)
		if latest != nil && (earliest.Before(w.began.Add(-exact)) || latest.After(w.now().Add(exact))) {
			w.T.Errorf("%s is from %s to %s, and the test began at %s", column, earliest, latest, w.began)
		}
	}
}

// TestWrongClocksAndLeases: a server with a wrong clock leaves the payments of another one alone, until their lease ends at the
// database's time.
func TestWrongClocksAndLeases(t *testing.T) {
	t.Parallel()
	w := newClockWorld(t)
	for name, s := range map[string]*server{"ahead": w.ahead, "behind": w.behind} {
		settles := w.proxy.count("/settle")
		hold := w.proxy.hold(2, false)
		o := w.alice.says(w.bob, "settled by a server whose clock is "+name)
		replied := make(chan testkit.Reply, 1)
		go func() {
			r, _ := s.send(context.WithoutCancel(t.Context()), o)
			replied <- r
		}()
		hold.await(t)
		var left time.Duration
		w.Scan("SELECT lease_until - clock_timestamp() FROM payments WHERE state = 'settling'", nil, &left)
		if left < time.Minute || left > 2*time.Minute {
			t.Errorf("the lease lasts for %s more, want less than two minutes", left)
		}
		select {
		case <-hold.reached:
			t.Errorf("the other server took up a payment of the server whose clock is %s", name)
		case <-time.After(3 * time.Second): // three runs of the recovery worker
		}
		w.Exec("UPDATE payments SET lease_until = clock_timestamp() + interval '2 seconds' WHERE state = 'settling'")
		hold.await(t)
		var over bool
		w.Scan("SELECT bool_and(lease_until > clock_timestamp() AND attempts = 2) FROM payments WHERE state = 'settling'", nil, &over)
		if !over {
			t.Error("nobody has a new lease of the payment")
		}
		hold.release()
		<-replied
		s.insist(o).Want(t, "the payment sent again", 200)
		w.arrivedOnce(o)
		if n := w.proxy.count("/settle") - settles; n > 2 {
			t.Errorf("/settle was called %d times, want at most twice", n)
		}
	}
	w.check()
}

// TestWrongClocksAndTheOperator: on a machine whose clock is ahead, a payment that can still be settled cannot be resolved as not
// settled.
func TestWrongClocksAndTheOperator(t *testing.T) {
	t.Parallel()
	w := newClockWorld(t)
	w.proxy.breakWith(onSettle(dropBefore))
	o := w.alice.says(w.bob, "settled late", within(-1, 60))
	w.ahead.pay(o).Want(t, "a payment whose settlement is cut off", 503)
	w.ahead.kill()
	w.behind.kill()
	var id string
	w.Scan("SELECT id::text FROM payments WHERE nonce = $1", []any{strings.ToLower(o.payment.Payload.Authorization.Nonce)}, &id)
	resolve := exec.CommandContext(t.Context(), attacked, "payments", "resolve", id, "--not-settled", "--reason=expired", "--database-url",
		w.DatabaseURL)
	resolve.Env = append(withoutSettings(os.Environ()), "PARLEY_CLOCK_SHIFT="+wrongBy.String())
	said, err := resolve.CombinedOutput()
	if err == nil || !strings.Contains(string(said), "the payment can still be settled until") {
		t.Errorf("resolve says %q (%v), want that the payment can still be settled", said, err)
	}
	w.proxy.mend()
	w.behind.start("")
	w.behind.insist(o).Want(t, "the payment sent again", 200)
	w.check()
}
