package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
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
