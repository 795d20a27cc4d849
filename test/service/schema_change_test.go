package service

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestAddedColumnsFailNoCall: an operator adds a column and an index to every table, and a table, while the server is busy. No call
// fails, whether its statements were prepared before or after, and whether the caller is in the cache of agents or new.
func TestAddedColumnsFailNoCall(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	post := func(who *agent, path, body string) testkit.Reply {
		return w.pay(who.Wallet, path, body, "X-API-KEY", who.Key)
	}
	chat, message := alice.send(bob, "a word to begin with")
	group := post(alice, "/chat/group/create", `{"name":"All","initial_member_ids":[`+quote(bob.ID)+`]}`).Field(t, "chat_id")

	changed := make(chan struct{})
	var calls sync.WaitGroup
	during := func(name string, call func(round int) testkit.Reply) {
		calls.Go(func() {
			for round := 0; ; round++ {
				if a := call(round); a.Status != http.StatusOK {
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
	during("send", func(int) testkit.Reply {
		return post(alice, "/chat/private/send", `{"recipient_agent_id":`+quote(bob.ID)+`,"content":"another word"}`)
	})
	during("send to the group", func(int) testkit.Reply {
		return post(bob, "/chat/group/send", `{"chat_id":`+quote(group)+`,"content":"hello"}`)
	})
	during("read", func(int) testkit.Reply { return post(bob, "/chat/private/messages", `{"chat_id":`+quote(chat)+`}`) })
	during("search", func(int) testkit.Reply {
		return post(bob, "/chat/private/search", `{"chat_id":`+quote(chat)+`,"query":"word"}`)
	})
	during("react", func(int) testkit.Reply {
		return post(bob, "/message/react", `{"message_id":`+quote(message)+`,"emoji":"👍"}`)
	})
	during("edit the group", func(round int) testkit.Reply {
		return post(alice, "/chat/group/edit", fmt.Sprintf(`{"chat_id":%q,"name":"All %d"}`, group, round))
	})
	during("find agents", func(int) testkit.Reply { return post(alice, "/search/agents", `{"query":"bob"}`) })
	during("show a profile", func(int) testkit.Reply { return post(carol, "/agent/profile", `{"username":"alice"}`) })
	during("block", func(int) testkit.Reply { return post(carol, "/agent/block", `{"agent_id":`+quote(alice.ID)+`}`) })
	during("poll", func(int) testkit.Reply {
		return w.call(http.MethodGet, "/agent/unread", "", "X-API-KEY", bob.Key, x402.HeaderPaymentSignature,
			w.signFor(bob.Wallet, http.MethodGet, "/agent/unread"))
	})
	during("register", func(round int) testkit.Reply { return w.register(carol.Wallet, fmt.Sprintf("newcomer_%d", round)) })

	w.changeTables()
	close(changed)
	calls.Wait()
}

// register creates an account and looks at it, and returns the first reply that is not a 200, or the last one.
func (w *world) register(wallet *ecdsa.PrivateKey, name string) testkit.Reply {
	w.T.Helper()
	a := w.pay(wallet, "/register/request_account", `{"requested_username":`+quote(name)+`}`)
	if a.Status != http.StatusOK {
		return a
	}
	tan := a.Field(w.T, "tan")
	w.Secret(tan)
	if a = w.pay(wallet, "/register/create_account", account(name, tan)); a.Status != http.StatusOK {
		return a
	}
	key := a.Field(w.T, "api_key")
	w.Secret(key)
	return w.call(http.MethodGet, "/agent/me", "", "X-API-KEY", key, x402.HeaderPaymentSignature,
		w.signFor(wallet, http.MethodGet, "/agent/me"))
}

// changeTables adds a column and an index to every table, one after the other, and a table that refers to agents.
func (w *world) changeTables() {
	w.T.Helper()
	w.Connect(func(ctx context.Context, c *pgx.Conn) error {
		rows,
			err := c.Query(ctx, `SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'goose_db_version' ORDER BY tablename`)
		if err != nil {
			return err
		}
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(tables) < 9 {
			return fmt.Errorf("the tables are %v: %w", tables, err)
		}
		for _, table := range tables {
			time.Sleep(100 * time.Millisecond) // so that calls come before and after each change
			if _, err := c.Exec(ctx, "ALTER TABLE "+table+" ADD COLUMN added_by_hand text"); err != nil {
				return err
			}
			if _, err := c.Exec(ctx, "CREATE INDEX CONCURRENTLY ON "+table+" (added_by_hand)"); err != nil {
				return err
			}
		}
		_, err = c.Exec(ctx, "CREATE TABLE added_by_hand (agent_id uuid PRIMARY KEY REFERENCES agents)")
		return err
	})
}
