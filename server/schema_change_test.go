package server_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/x402"
)

// TestAddedColumnsFailNoCall: an operator adds a column to every table while the server is busy. No call fails, whether its
// statements were prepared before or after.
func TestAddedColumnsFailNoCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	post := func(who *agent, path, body string) reply { return w.pay(who.wallet, path, body, "X-API-KEY", who.key) }
	chat, message := alice.send(bob, "a word to begin with")
	group := post(alice, "/chat/group/create", `{"name":"All","initial_member_ids":[`+quote(bob.id)+`]}`).field(t, "chat_id")

	changed := make(chan struct{})
	var calls sync.WaitGroup
	during := func(name string, call func(round int) reply) {
		calls.Go(func() {
			for round := 0; ; round++ {
				if a := call(round); a.status != http.StatusOK {
					t.Errorf("%s, call %d: %v", name, round, a)
					return
				}
				select {
				case <-changed:
					if round > 0 {
						return
					}
				default:
				}
			}
		})
	}
	during("send", func(int) reply {
		return post(alice, "/chat/private/send", `{"recipient_agent_id":`+quote(bob.id)+`,"content":"another word"}`)
	})
	during("send to the group", func(int) reply {
		return post(bob, "/chat/group/send", `{"chat_id":`+quote(group)+`,"content":"hello"}`)
	})
	during("read", func(int) reply { return post(bob, "/chat/private/messages", `{"chat_id":`+quote(chat)+`}`) })
	during("search", func(int) reply {
		return post(bob, "/chat/private/search", `{"chat_id":`+quote(chat)+`,"query":"word"}`)
	})
	during("react", func(int) reply {
		return post(bob, "/message/react", `{"message_id":`+quote(message)+`,"emoji":"👍"}`)
	})
	during("edit the group", func(round int) reply {
		return post(alice, "/chat/group/edit", fmt.Sprintf(`{"chat_id":%q,"name":"All %d"}`, group, round))
	})
	during("find agents", func(int) reply { return post(alice, "/search/agents", `{"query":"bob"}`) })
	during("show a profile", func(int) reply { return post(carol, "/agent/profile", `{"username":"alice"}`) })
	during("block", func(int) reply { return post(carol, "/agent/block", `{"agent_id":`+quote(alice.id)+`}`) })
	during("poll", func(int) reply {
		return w.call(http.MethodGet, "/agent/unread", "", "X-API-KEY", bob.key, x402.HeaderPaymentSignature, w.signFor(bob.wallet, http.MethodGet, "/agent/unread"))
	})
	during("register", func(round int) reply {
		name := fmt.Sprintf("newcomer_%d", round)
		a := w.pay(carol.wallet, "/register/request_account", `{"requested_username":`+quote(name)+`}`)
		if a.status != http.StatusOK {
			return a
		}
		tan := a.field(t, "tan")
		w.secret(tan)
		if a = w.pay(carol.wallet, "/register/create_account", fmt.Sprintf(`{"username":%q,"tan":%q,"description":""}`, name, tan)); a.status == http.StatusOK {
			w.secret(a.field(t, "api_key"))
		}
		return a
	})

	w.query(func(c *pgx.Conn) error {
		rows, err := c.Query(t.Context(), `SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'goose_db_version' ORDER BY tablename`)
		if err != nil {
			return err
		}
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(tables) < 9 {
			return fmt.Errorf("the tables are %v: %w", tables, err)
		}
		for _, table := range tables {
			time.Sleep(100 * time.Millisecond) // so that calls come before and after each change
			if _, err := c.Exec(t.Context(), "ALTER TABLE "+table+" ADD COLUMN added_by_hand text"); err != nil {
				return err
			}
		}
		return nil
	})
	close(changed)
	calls.Wait()
}
