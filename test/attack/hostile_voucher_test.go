//go:build attack

package attack

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// What callers can do to others who pay for all of it, with the vouchers of many payment channels: each of these calls costs 0.001 USD.

// buyer pays with the vouchers of a payment channel of its own. Its account may have many.
type buyer struct {
	signer  *x402.ChannelSigner
	order   order // without payment
	charged uint64
	caller  *caller
}

// buyers are payment channels that pay for orders of an account, each with a wallet of its own and a deposit of a dollar.
func (x *trial) buyers(n int, caller *caller, of *agent, path, query, body string) (all []*buyer) {
	x.T.Helper()
	for range n {
		key := x.Wallet(2 * testkit.Dollar)
		signer, err := x402.NewChannelSigner(x402.NewKeySigner(key), fmt.Sprintf("0x%064x", 1), channelOffer(path, day))
		testkit.NoError(x.T, err)
		o := order{operation: operations[path], body: body, headers: []string{"X-API-KEY", of.key}}
		o.path += query
		b := &buyer{signer: signer, order: o, caller: caller}
		b.buy(x.T.Context(), x, testkit.Dollar).Require(x.T, path, http.StatusOK)
		all = append(all, b)
	}
	return all
}

// buy makes the next call. A call that is refused is not charged.
func (b *buyer) buy(ctx context.Context, x *trial, deposit uint64) testkit.Reply {
	path, _, _ := strings.Cut(b.order.path, "?")
	payment, err := b.signer.Sign(ctx, b.charged+b.order.price, deposit, x.Ledger.Now())
	if err != nil {
		return testkit.Reply{}
	}
	payment.Accepted = channelOffer(path, day)
	if b.order.header, err = x402.EncodeBatchPayment(payment); err != nil {
		return testkit.Reply{}
	}
	r, _ := b.again(ctx, x)
	if r.Status == http.StatusOK {
		b.charged += b.order.price
	}
	return r
}

// again sends the last payment again.
func (b *buyer) again(ctx context.Context, x *trial) (testkit.Reply, error) {
	return b.caller.send(ctx, x.s, b.order)
}

// seeded makes agents, conversations and messages that others would have paid for.
func (x *trial) seeded(statement string, values ...any) {
	x.T.Helper()
	x.Exec(statement, values...)
	x.Exec("ANALYZE")
}

// busyGroup is a group chat in which an agent has n unread messages.
func (x *trial) busyGroup(reader *agent, name string, n int) (chat string) {
	x.T.Helper()
	writer := x.s.agent("writer_" + name)
	chat = x.s.pay(x.order(writer.wallet, writer.key, "/chat/group/create", map[string]any{"name": name,
		"initial_member_ids": []string{reader.id}})).Field(x.T, "chat_id")
	x.seeded(`WITH written AS (
			INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at)
			SELECT c.id, n, gen_random_uuid(), c.admin_id, 'message ' || n, now() - interval '1 hour' + n * interval '1 ms'
			FROM conversations c, generate_series(1, $2) n WHERE c.name = $1
		) UPDATE conversations SET last_number = $2, last_message_at = now() WHERE name = $1`, name, n)
	return chat
}

var purchases = []struct {
	name   string
	buyers func(x *trial, c *caller) []*buyer
	free   bool // each payment is sent ten times
}{
	{"pages of 1 MiB by 32 payment channels of one account", func(x *trial, c *caller) []*buyer {
		reader, chat := x.wideChat()
		return x.buyers(32, c, reader, listPath, "", pageOf(chat))
	}, false},
	{"pages of 1 MiB by 64 payment channels of 8 accounts", func(x *trial, c *caller) (all []*buyer) {
		_, chat := x.wideChat()
		for i := range 8 {
			account := x.s.agent(fmt.Sprintf("account_%d", i))
			x.Exec(`INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
				SELECT m.conversation_id, a.id, 'member', 0, 0, now() FROM agents a, memberships m JOIN agents r ON r.id = m.agent_id
				WHERE a.username = $1 AND r.username = $2 LIMIT 1`, account.name, x.reader.name)
			all = append(all, x.buyers(8, c, account, listPath, "", pageOf(chat))...)
		}
		return all
	}, false},
	{"the last page of unread messages that can be asked for, by 16 payment channels", func(x *trial, c *caller) []*buyer {
		reader := x.s.agent("reader_busy")
		x.busyGroup(reader, "busy", 200_000)
		return x.buyers(16, c, reader, "/agent/unread", "?mark_read=false&page_size=1&page=1001", "")
	}, false},
	{"messages with 40 reactions each by 16 payment channels", func(x *trial, c *caller) []*buyer {
		reader := x.s.agent("reader_loved")
		chat := x.busyGroup(reader, "loved", 250)
		x.seeded(`WITH fans AS (
				INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
				SELECT gen_random_uuid(), 'fan_of_everything_' || n, '', false, sha256(CAST('fan ' || n AS bytea)), now()
				FROM generate_series(1, 40) n RETURNING id
			) INSERT INTO reactions (conversation_id, number, agent_id, emoji, created_at)
			SELECT c.id, n, f.id, '🏴󠁧󠁢󠁥󠁮󠁧󠁿', now() FROM conversations c, generate_series(1, 250) n, fans f WHERE c.name = 'loved'`)
		return x.buyers(16, c, reader, "/chat/group/messages", "", fmt.Sprintf(`{"chat_id":%q,"n":250,"mark_read":false}`, chat))
	}, false},
	{"a group chat of 999 members by 16 payment channels, each payment ten times", func(x *trial, c *caller) []*buyer {
		reader := x.s.agent("reader_crowd")
		chat := x.busyGroup(reader, "crowd", 1)
		x.seeded(`WITH crowd AS (
				INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
				SELECT gen_random_uuid(), 'crowd_' || n, repeat('𝕏', 1024), false, sha256(CAST('crowd ' || n AS bytea)), now()
				FROM generate_series(1, 997) n RETURNING id
			), added AS (
				INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
				SELECT c.id, w.id, 'member', 1, 1, now() FROM conversations c, crowd w WHERE c.name = 'crowd'
			) UPDATE conversations SET member_count = 999 WHERE name = 'crowd'`)
		return x.buyers(16, c, reader, "/chat/group/info", "", fmt.Sprintf(`{"chat_id":%q}`, chat))
	}, true},
}

// TestHostileVouchers: a caller that pays for each of its calls takes little memory, and nobody waits for it.
func TestHostileVouchers(t *testing.T) {
	x := &trial{world: newWorld(t), medians: true, address: attackerAddress, tally: &tally{statuses: map[int]int{}, codes: map[string]int{}}}
	x.s = x.serve(x.channelFlags()...)
	for _, purchase := range purchases {
		t.Run(purchase.name, func(t *testing.T) {
			x.moveOn(t)
			attacker := x.attacker()
			attacker.paying = true
			all := purchase.buyers(x, attacker)
			x.measure(purchase.name, func(ctx context.Context) {
				flood(ctx, len(all), 20_000, func(ctx context.Context, worker, round int) {
					b := all[worker]
					if purchase.free && round%10 > 0 {
						_, _ = b.again(ctx, x)
						return
					}
					// A call that is cut off may be charged: the attack ends then.
					if r := b.buy(context.WithoutCancel(ctx), x, 0); r.Status != http.StatusOK && ctx.Err() == nil {
						time.Sleep(time.Second)
					}
				})
			})
			if x.tally.statuses[http.StatusOK] == 0 {
				t.Errorf("nothing was bought: %s", x.tally)
			}
		})
	}
}
