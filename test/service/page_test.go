package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/x402"
)

// fill makes n long messages of the sender the content of the private chat.
func (w *world) fill(sender *agent, n int, content string) {
	w.T.Helper()
	w.Exec(`DELETE FROM messages`)
	w.Exec(fmt.Sprintf(`INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at)
		SELECT c.id, i, gen_random_uuid(), a.id, %s, clock_timestamp()
		FROM generate_series(1, %d) AS i, conversations c, agents a WHERE a.username = '%s' ORDER BY i`, content, n, sender.Name))
	w.Exec(fmt.Sprintf(`UPDATE conversations SET last_number = %d, last_message_at = clock_timestamp()`, n))
}

// pageView is what the pages of several operations have in common.
type pageView struct {
	Messages []struct {
		MessageID string `json:"message_id"`
	}
	NextBeforeMessageID string `json:"next_before_message_id"`
}

func readPage(t *testing.T, a testkit.Reply) (page pageView) {
	t.Helper()
	if err := json.Unmarshal(a.Body, &page); err != nil || a.Status != http.StatusOK {
		t.Fatalf("a page: %d %.200s (%v)", a.Status, a.Body, err)
	}
	if len(a.Body) > 2<<20+100_000 {
		t.Errorf("a page of %d messages has %d bytes, want at most 2 MiB and what stands around the content", len(page.Messages), len(a.Body))
	}
	return page
}

// fans are agents with usernames of the greatest length.
func (w *world) fans(n int) {
	w.T.Helper()
	w.Exec(fmt.Sprintf(`INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
		SELECT gen_random_uuid(), 'fan_' || lpad(CAST(i AS text), 28, '0'), '', true, sha256(CAST('fan ' || i AS bytea)), now()
		FROM generate_series(1, %d) AS i`, n))
}

// longEmoji is SQL for an emoji of 128 bytes, the longest: the black flag with tags. It depends on the number of a fan.
const longEmoji = `chr(127988) || repeat(chr(917601), 29) || chr(917536 + CAST(substr(a.username, 5) AS int) % 64) || chr(917631)`

// reactAll lets all fans react to all messages.
func (w *world) reactAll(emoji string) {
	w.T.Helper()
	w.Exec(`INSERT INTO reactions (conversation_id, number, agent_id, emoji, created_at)
		SELECT o.conversation_id, o.number, a.id, ` + emoji + `, clock_timestamp() FROM messages o, agents a WHERE a.username LIKE 'fan%'`)
}

// TestReactionsTakeRoom: reactions and emoji count as part of a page of messages or matches. What they keep out of it comes with the next
// page, and stays unread until then.
func TestReactionsTakeRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	chat, _ := alice.send(bob, "first")
	const n = 150
	w.fill(alice, n, `repeat('x', 14000)`)
	w.fans(120)
	w.reactAll(longEmoji)
	for _, walk := range []struct {
		path, body string
		first      int // messages on the first page
	}{
		{"/chat/private/messages", `{"n":250,"chat_id":` + quote(chat), 47},
		{"/chat/private/messages", `{"n":16,"chat_id":` + quote(chat), 16},
		{"/chat/private/search", `{"query":"xxx","chat_id":` + quote(chat), 47},
	} {
		w.Exec(`UPDATE memberships SET read_number = 0, unread_own = 0`)
		seen, pages, more := map[string]bool{}, 0, ""
		for len(seen) < n && pages <= n/16 {
			page := readPage(t, w.pay(bob.Wallet, walk.path, walk.body+more+`}`, "X-API-KEY", bob.Key))
			for _, message := range page.Messages {
				seen[message.MessageID] = true
			}
			oldest := page.Messages[len(page.Messages)-1].MessageID
			cut := page.NextBeforeMessageID != ""
			if pages++; pages == 1 && (len(page.Messages) != walk.first || cut != (walk.first > 16)) || cut && page.NextBeforeMessageID != oldest {
				t.Errorf("%s: %d messages, then those before %q", walk.body, len(page.Messages), page.NextBeforeMessageID)
			}
			if total := bob.unread(nil, new(int64(1)), new(false)).TotalUnread; pages == 1 && total != n {
				t.Errorf("%s: %d messages are unread after the first page, want all: the oldest were not returned", walk.body, total)
			}
			more = `,"before_message_id":` + quote(oldest)
		}
		if len(seen) != n {
			t.Errorf("%s shows %d messages on %d pages, want %d", walk.body, len(seen), pages, n)
		}
	}
}

// TestMemberDescriptionsAreCut: lists of members have the beginnings of descriptions, the profile has all of it.
func TestMemberDescriptionsAreCut(t *testing.T) {
	t.Parallel()
	most := *testkit.Contract.Components.Schemas["MemberDescription"].Value.MaxLength
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	whole := strings.Repeat("🦜é", 512)
	bob.must("/agent/edit", fields{"description": whole})
	private, _ := alice.send(bob, "first")
	group := alice.must("/chat/group/create", fields{"name": "group", "initial_member_ids": []string{bob.ID}}).Field(t, "chat_id")
	for path, chat := range map[string]string{"/chat/private/info": private, "/chat/group/info": group} {
		var info struct{ Members []client.GroupMember }
		testkit.NoError(t, json.Unmarshal(alice.must(path, fields{"chat_id": chat}).Body, &info))
		for _, member := range info.Members {
			if want := string([]rune(whole)[:most]); member.AgentID == bob.ID && member.Description != want {
				t.Errorf("%s: %q, want the first %d characters", path, member.Description, most)
			}
		}
		if len(info.Members) != 2 {
			t.Errorf("%s: %d members, want two", path, len(info.Members))
		}
	}
	if profile := alice.must("/agent/profile", fields{"agent_id": bob.ID}).Field(t, "description"); profile != whole {
		t.Errorf("the profile has %q", profile)
	}
}

// TestPagesAreNotStored: the ledger keeps which messages a page had, however long they are, and the same payment gets the page made from
// that. It has no reaction that came later, and not the content that the operator has removed since.
func TestPagesAreNotStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels, func(config *server.Config, _ *payment.Chain, _ string) {
		many := edge.Rate{PerSecond: 1, Burst: 10_000}
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
