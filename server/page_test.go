package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// fill makes n long messages of the sender the content of a conversation that is named, or of the private chat.
func (w *world) fill(name string, sender *agent, n int, content string) {
	w.T.Helper()
	where := "name = '" + name + "'"
	if name == "" {
		where = "kind = 'private'"
	}
	w.Exec(fmt.Sprintf(`DELETE FROM messages WHERE conversation_id = (SELECT id FROM conversations WHERE %s)`, where))
	w.Exec(fmt.Sprintf(`INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at)
		SELECT c.id, i, gen_random_uuid(), a.id, %s, clock_timestamp()
		FROM generate_series(1, %d) AS i, conversations c, agents a WHERE c.%s AND a.username = '%s' ORDER BY i`, content, n, where, sender.Name))
	w.Exec(fmt.Sprintf(`UPDATE conversations SET last_number = %d, last_message_at = clock_timestamp() WHERE %s`, n, where))
	w.Exec(fmt.Sprintf(`UPDATE memberships SET read_number = 0, unread_own = 0 WHERE conversation_id = 
		(SELECT id FROM conversations WHERE %s)`, where))
}

// pageView is what the pages of the seven operations have in common.
type pageView struct {
	Messages []struct {
		MessageID string `json:"message_id"`
	}
	Total               int
	Count               int
	TotalUnread         int    `json:"total_unread"`
	CutShort            bool   `json:"cut_short"`
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

// TestPagesAreBounded: whatever the messages, a response with a page of them stays about 2 MiB, says where it was cut
// short, and who goes on from there gets every message once.
func TestPagesAreBounded(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{"many bytes": `repeat('🦜', 16384)`, "much JSON": `repeat('<', 16384)`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			alice, bob := w.agent("alice"), w.agent("bob")
			chat, _ := alice.send(bob, "first")
			w.insertConversation("group", "group", alice, alice, bob)
			w.insertConversation("channel", "channel", alice, bob)
			const n = 60
			for _, conversation := range []string{"", "group", "channel"} {
				w.fill(conversation, alice, n, content)
			}
			var me client.OwnAgent
			if err := json.Unmarshal(w.me(bob, bob.Key).Body, &me); err != nil {
				t.Fatal(err)
			}
			group := me.ChatIds[1-slices.Index(me.ChatIds, chat)]
			for _, walk := range []struct{ path, body string }{
				{"/chat/private/messages", `{"n":250,"chat_id":` + quote(chat)},
				{"/chat/group/messages", `{"n":250,"chat_id":` + quote(group)},
				{"/channel/messages", `{"n":250,"channel_id":` + quote(me.SubscribedChannelIds[0])},
				{"/chat/private/search", `{"query":"🦜|<","chat_id":` + quote(chat)},
				{"/chat/group/search", `{"query":"🦜|<","chat_id":` + quote(group)},
				{"/channel/search", `{"query":"🦜|<","channel_id":` + quote(me.SubscribedChannelIds[0])},
			} {
				w.Exec(`UPDATE memberships SET read_number = 0, unread_own = 0`)
				seen, pages, more := map[string]bool{}, 0, ""
				for done := false; !done; pages++ {
					page := readPage(t, w.pay(bob.Wallet, walk.path, walk.body+more+`}`, "X-API-KEY", bob.Key))
					for _, message := range page.Messages {
						seen[message.MessageID] = true
					}
					if done = page.NextBeforeMessageID == ""; len(page.Messages) == 0 {
						t.Fatalf("%s: page %d is empty", walk.path, pages+1)
					}
					more = `,"before_message_id":` + quote(page.NextBeforeMessageID)
				}
				if len(seen) != n || pages < 3 {
					t.Errorf("%s shows %d messages on %d pages, want %d on several", walk.path, len(seen), pages, n)
				}
			}

			w.Exec(`UPDATE memberships SET read_number = 0, unread_own = 0 WHERE agent_id = ` + uuidOf("bob"))
			unread := func(query string) pageView {
				t.Helper()
				return readPage(t, w.call(http.MethodGet, "/agent/unread?page_size=250"+query, "", "X-API-KEY", bob.Key, "PAYMENT-SIGNATURE",
					w.signFor(bob.Wallet, http.MethodGet, "/agent/unread")))
			}
			if peek := unread("&mark_read=false"); !peek.CutShort || peek.TotalUnread != 3*n {
				t.Errorf("looking at what is unread: %d of %d, cut short: %v", len(peek.Messages), peek.TotalUnread, peek.CutShort)
			}
			read := 0
			for cut := true; cut; {
				page := unread("")
				if page.TotalUnread != 3*n-read || len(page.Messages) == 0 {
					t.Fatalf("after %d messages %d of %d are returned", read, len(page.Messages), page.TotalUnread)
				}
				read, cut = read+len(page.Messages), page.CutShort
			}
			if read != 3*n {
				t.Errorf("%d unread messages were returned, want %d", read, 3*n)
			}
		})
	}
}
