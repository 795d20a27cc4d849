package service

import (
	"crypto/ecdsa"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/x402"
)

func account(username, tan string) string {
	return fmt.Sprintf(`{"username":%q,"tan":%q,"description":"x"}`, username, tan)
}

// TestTANs: the two steps of a registration, and what a TAN is good for. The account comes with its id and its key.
func TestTANs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.Wallet(50*testkit.Dollar), w.Wallet(50*testkit.Dollar)
	const request, create = "/register/request_account", "/register/create_account"
	reserve := func(name string) string {
		t.Helper()
		tan := w.pay(alice, request, `{"requested_username":`+quote(name)+`}`).Field(t, "tan")
		w.Secret(tan)
		if !regexp.MustCompile(`^[0-9A-HJKMNP-TV-Z]{8}$`).MatchString(tan) {
			t.Errorf("the TAN %q is not 8 characters of Crockford base32", tan)
		}
		return tan
	}
	refused := func(why string, a testkit.Reply) {
		t.Helper()
		a.WantRefused(t, why, 403, "invalid_tan")
	}

	tan := reserve("one")
	revenue := w.Revenue()
	if again := reserve("one"); again != tan || w.Revenue() != revenue {
		t.Errorf("the same wallet asks again: another TAN, or charged %d, want the same one uncharged", w.Revenue()-revenue)
	}
	refused("the TAN of another username", w.pay(alice, create, account("two", tan)))
	created := w.pay(bob, create, account("one", tan))
	key := created.Field(t, "api_key")
	w.Secret(key)
	if !regexp.MustCompile(`^parley_[0-9A-Za-z]{49}$`).MatchString(key) {
		t.Errorf("the key does not look like a key: %.8s…", key)
	}
	profile := w.pay(bob, "/agent/profile", `{"username":"one"}`, "X-API-KEY", key)
	if id := created.Field(t, "agent_id"); id != profile.Field(t, "agent_id") {
		t.Errorf("the account is created as %s, and its profile is %s", id, profile.Body)
	}
	refused("a used TAN", w.pay(alice, create, account("one", tan)))

	tan = reserve("lower")
	w.pay(alice, create, account("lower", string(regexp.MustCompile(`[A-Z]`).ReplaceAllFunc([]byte(tan),
		func(b []byte) []byte { return []byte{b[0] + 32} })))).Want(t, "a TAN in lower case", http.StatusOK)

	tan = reserve("late")
	w.Exec("UPDATE registrations SET expires_at = now() WHERE username = 'late'")
	refused("an expired TAN", w.pay(alice, create, account("late", tan)))
	w.pay(bob, request, `{"requested_username":"late"}`).Want(t, "a username whose TAN has expired", 200)
}

// TestNamesOfTheOperator: nobody can register a name that poses as the operator. The refusal says so, and is free.
func TestNamesOfTheOperator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wallet := w.Wallet(50 * testkit.Dollar)
	for _, name := range []string{"parley", "admin", "administrator", "support", "system", "moderator", "operator", "security", "official",
		"root", "help"} {
		a := w.pay(wallet, "/register/request_account", `{"requested_username":`+quote(name)+`}`)
		a.WantRefused(t, "the name "+name, http.StatusConflict, "username_reserved")
		if !strings.Contains(a.Message, "reserved for the operator") {
			t.Errorf("the refusal of %s says %q, want that the name is reserved for the operator", name, a.Message)
		}
	}
	w.pay(wallet, "/register/request_account", `{"requested_username":"helper"}`).Want(t, "a name that only begins like one", http.StatusOK)
}

// TestWrongTANsCountAgainstWhoTries: five wrong TANs end the tries of the wallet and the address that made them, and never the
// TAN; a wallet without money gets no try.
func TestWrongTANsCountAgainstWhoTries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withLimits(edge.Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))
	const create = "/register/create_account"
	victim, attacker := w.Wallet(10*testkit.Dollar), w.Wallet(10*testkit.Dollar)
	tan := w.pay(victim, "/register/request_account", `{"requested_username":"victim"}`).Field(t, "tan")
	w.Secret(tan)
	from := func(wallet *ecdsa.PrivateKey, address, tan string) testkit.Reply {
		return w.pay(wallet, create, account("victim", tan), "X-Forwarded-For", address)
	}
	for range 20 {
		from(w.Wallet(0), "192.0.2.1", "00000000").Require(t, "a wrong TAN from a wallet without money", 402)
	}
	for range 5 {
		from(attacker, "192.0.2.1", "00000000").WantRefused(t, "a wrong TAN", 403, "invalid_tan")
	}
	for name, a := range map[string]testkit.Reply{
		"the wallet, elsewhere":       from(attacker, "192.0.2.2", tan),
		"the address, another wallet": from(w.Wallet(10*testkit.Dollar), "192.0.2.1", tan),
	} {
		if a.Status != http.StatusTooManyRequests || a.Code != "rate_limited" || a.Header.Get("Retry-After") == "" || a.Charged {
			t.Errorf("a sixth try, %s: %v, want 429 with Retry-After", name, a)
		}
	}
	w.Secret(from(victim, "192.0.2.3", tan).Field(t, "api_key"))
	w.Exec(`UPDATE tan_tries SET expires_at = now() - interval '1 second'`)
	if _, err := w.store.CleanUp(t.Context(), 100); err != nil || w.Count(`SELECT count(*) FROM tan_tries`) != 0 {
		t.Errorf("tries are kept for more than ten minutes (%v)", err)
	}
}

// TestWrongTANsAtTheSameTime: of many wrong TANs that one address sends at once, with a wallet for each, five are checked, with one server
// and
// with two. They end the tries for ten minutes.
func TestWrongTANsAtTheSameTime(t *testing.T) {
	t.Parallel()
	for name, servers := range map[string]int{"one server": 1, "two servers": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worlds := []*world{newWorld(t)}
			if servers == 2 {
				worlds = append(worlds, newWorldOn(t, worlds[0].DatabaseURL))
			}
			const create = "/register/create_account"
			replies := make([]testkit.Reply, 24)
			var running sync.WaitGroup
			for i := range replies {
				w := worlds[i%servers]
				payment := w.sign(w.Wallet(10*testkit.Dollar), create)
				running.Go(func() {
					for replies[i].Status == 0 || replies[i].Status == http.StatusServiceUnavailable && t.Context().Err() == nil { // a busy machine
						replies[i], _ = w.try(http.MethodPost, create, account("victim", "00000000"), x402.HeaderPaymentSignature, payment)
					}
				})
			}
			running.Wait()
			statuses := map[int]int{}
			for _, a := range replies {
				statuses[a.Status]++
			}
			if diff := cmp.Diff(map[int]int{http.StatusForbidden: 5, http.StatusTooManyRequests: len(replies) - 5}, statuses); diff != "" {
				t.Errorf("the statuses of %d wrong TANs (-want +got):\n%s", len(replies), diff)
			}
			w := worlds[0]
			if rows := w.Count("SELECT count(*) FROM tan_tries WHERE checking > 0"); rows != 0 {
				t.Errorf("%d tries are still being checked", rows)
			}
			w.Exec("UPDATE tan_tries SET expires_at = now() - interval '1 second'")
			w.pay(w.Wallet(10*testkit.Dollar), create, account("victim", "00000000")).WantRefused(t, "ten minutes later", http.StatusForbidden,
				"invalid_tan")
			if _, err := w.store.CleanUp(t.Context(), 100); err != nil || w.Count("SELECT count(*) FROM tan_tries") != 2 {
				t.Errorf("expired tries are not deleted: %v", err)
			}
		})
	}
}

// TestRightTANsAtTheSameTime: tries with right TANs count for nobody, however many an address makes at once.
func TestRightTANsAtTheSameTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var running sync.WaitGroup
	for i := range 12 {
		name, wallet := fmt.Sprintf("agent_%d", i), w.Wallet(10*testkit.Dollar)
		tan := w.pay(wallet, "/register/request_account", `{"requested_username":`+quote(name)+`}`).Field(t, "tan")
		w.Secret(tan)
		payment := w.sign(wallet, "/register/create_account")
		running.Go(func() {
			a, err := w.try(http.MethodPost, "/register/create_account", account(name, tan), x402.HeaderPaymentSignature, payment)
			if err != nil || a.Status != http.StatusOK {
				t.Errorf("%s: %v, %v", name, a, err)
				return
			}
			w.Secret(a.Text("api_key"))
		})
	}
	running.Wait()
	if rows := w.Count("SELECT count(*) FROM tan_tries WHERE checking + wrong > 0"); rows != 0 {
		t.Errorf("%d tries count", rows)
	}
}

// TestOneTANTwoPayments: both payments are good, one creates the account, the other is not charged.
func TestOneTANTwoPayments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withLimits(edge.Limits{WrongTANs: 100})) // whoever comes late tries a used TAN
	wallet := w.Wallet(50 * testkit.Dollar)
	const create = "/register/create_account"
	for round := range 5 {
		name := fmt.Sprintf("racer_%d", round)
		tan := w.pay(wallet, "/register/request_account", `{"requested_username":`+quote(name)+`}`).Field(t, "tan")
		revenue := w.Revenue()
		payments := []string{w.sign(wallet, create), w.sign(w.Wallet(testkit.Dollar), create), w.sign(w.Wallet(testkit.Dollar), create)}
		replies := make([]testkit.Reply, len(payments))
		var group sync.WaitGroup
		for i, payment := range payments {
			group.Go(func() {
				replies[i], _ = w.try(http.MethodPost, create, account(name, tan), x402.HeaderPaymentSignature, payment)
			})
		}
		group.Wait()
		created := 0
		for _, a := range replies {
			switch {
			case a.Status == http.StatusOK:
				created++
			case (a.Code != "username_reserved" && a.Code != "invalid_tan") || a.Charged:
				t.Errorf("a slower payment returns %v", a)
			}
		}
		if created != 1 || w.Revenue() != revenue+990_000 {
			t.Errorf("%d accounts for %d, want one for 990000", created, w.Revenue()-revenue)
		}
	}
}

// TestTANIsKeptForTheSettlement: it may run out while the money moves, the paid account is created all the same.
func TestTANIsKeptForTheSettlement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wallet := w.Wallet(50 * testkit.Dollar)
	tan := w.pay(wallet, "/register/request_account", `{"requested_username":"slow"}`).Field(t, "tan")
	mend := w.breakFacilitator(func(http.ResponseWriter, *http.Request) bool {
		w.Exec("UPDATE registrations SET expires_at = now()")
		return false
	})
	defer mend()
	w.pay(wallet, "/register/create_account", account("slow", tan)).Want(t, "the account", 200)
}
