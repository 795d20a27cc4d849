package server_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// TestPagesAreNotStored: the ledger keeps which messages a page had, however long they are, and the same payment gets the page made from
// that. It has no reaction that came later, and not the content that the operator has removed since.
func TestPagesAreNotStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels, func(config *server.Config, _ *payment.Chain, _ string) {
		many := server.Rate{PerSecond: 1, Burst: 10_000}
		config.Limits.Address, config.Limits.Account, config.Limits.Wallet = many, many, many
	})
	alice, bob, payer := w.openChannel()
	group := bob.createGroup("planners", alice)
	bob.react(bob.sendGroup(group, "first"), "👍")
	for range 15 {
		bob.sendGroup(group, "first "+strings.Repeat("𝕏", 16_300))
	}
	later := map[string]string{"/chat/group/messages": "🎉", "/chat/group/search": "🚀", unreadPath: "👀"}
	o, charged := w.operator(), uint64(5000)
	for path, body := range map[string]string{
		"/chat/group/messages": fields{"chat_id": group, "n": 250, "mark_read": false}.json(t),
		"/chat/group/search":   fields{"chat_id": group, "query": "first"}.json(t),
		unreadPath:             "",
	} {
		secret, last := bob.sendGroup(group, "first secret"), bob.sendGroup(group, "first and last")
		method, target, sign := http.MethodPost, path, payer.sign
		if body == "" {
			method, target = http.MethodGet, path+"?mark_read=false"
			sign = func(path string, cumulative, _ uint64, _ ...func(*x402.BatchPayment)) string {
				return payer.signGet(path, cumulative)
			}
		}
		charged += testkit.Price(method + " " + path)
		payments := map[string]string{"exact": w.signFor(alice.Wallet, method, path), "a voucher": sign(path, charged, 0)}
		first := map[string][]byte{}
		send := func(paid string) testkit.Reply {
			return w.call(method, target, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, paid)
		}
		for scheme, paid := range payments {
			page := send(paid)
			page.Require(t, path+" by "+scheme, http.StatusOK)
			if first[scheme] = page.Body; len(page.Body) < 900_000 || !bytes.Contains(page.Body, []byte("secret")) {
				t.Errorf("%s: the page has %d bytes, want a long one", path, len(page.Body))
			}
		}
		for scheme, paid := range payments {
			if again := send(paid); !bytes.Equal(again.Body, first[scheme]) || again.Header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%s by %s, again: %.300v, want the same page", path, scheme, again)
			}
		}
		emoji := later[path]
		alice.react(last, emoji)
		o.must(o.on.RemoveMessage(t.Context(), o.by, o.id(secret)))
		for scheme, paid := range payments {
			again := send(paid)
			again.Require(t, path+" by "+scheme+", later", http.StatusOK)
			for _, text := range []string{emoji, "secret"} {
				if bytes.Contains(again.Body, []byte(text)) {
					t.Errorf("%s by %s, later: the page has %s", path, scheme, text)
				}
			}
		}
	}
	if most := w.Count(`SELECT coalesce(max(octet_length(response)), 0) FROM payments`); most > 4_000 {
		t.Errorf("a stored response has %d bytes, want at most 4,000", most)
	}
}
