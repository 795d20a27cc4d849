package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
)

// TestRejectedAlike: a call that shares its commit and one with a transaction of its own are rejected for the same reasons, and the dry run
// rejects what breaks a rule. A message that shares its commit is refused without a transaction. What is rejected leaves nothing.
func TestRejectedAlike(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx := t.Context()
	sender, blocker, blocked, gone := g.agents[1], g.agents[2], g.agents[3], agent(t, g.Store, "suspended")
	stranger, banned := agent(t, g.Store, "stranger"), agent(t, g.Store, "banned")
	deleted, channel := uuid.Must(uuid.NewV7()), g.conversations[len(g.conversations)-1]
	if err := errors.Join(
		g.Transaction(ctx, func(tx *store.Tx) error { return tx.BlockAgent(ctx, blocker, sender) }),
		g.Transaction(ctx, func(tx *store.Tx) error { return tx.BlockAgent(ctx, sender, blocked) }),
		g.SuspendAgent(ctx, store.Operator{Actor: "operator", Reason: "test"}, gone, ""),
		g.Transaction(ctx, func(tx *store.Tx) error { return tx.Join(ctx, g.group, banned) }),
		g.Transaction(ctx, func(tx *store.Tx) error { return tx.Ban(ctx, g.group, g.agents[0], []uuid.UUID{banned}) }),
		g.Transaction(ctx, func(tx *store.Tx) error {
			return tx.CreateConversation(ctx, store.KindGroup, deleted, sender, "deleted", nil, false)
		}), g.Transaction(ctx, func(tx *store.Tx) error { return tx.Join(ctx, deleted, sender) }),
		g.Transaction(ctx, func(tx *store.Tx) error { return tx.DeleteConversation(ctx, store.KindGroup, deleted, sender) }),
	); err != nil {
		t.Fatal(err)
	}
	toChannel := func(from, to uuid.UUID) store.OutgoingMessage {
		return store.OutgoingMessage{Kind: store.KindChannel, To: to, Sender: from, ID: uuid.Must(uuid.NewV7()), Content: "text"}
	}
	before := g.count(`SELECT count(*) FROM messages`)
	channels := 0
	for name, test := range map[string]struct {
		message store.OutgoingMessage
		want    error
	}{
		"to an agent that has blocked the sender": {private(sender, blocker, "text"), store.ErrBlocked},
		"to a blocked agent":                      {private(sender, blocked, "text"), store.ErrBlocking},
		"to a suspended agent":                    {private(sender, gone, "text"), store.ErrAgentSuspended},
		"to an unknown agent":                     {private(sender, uuid.New(), "text"), store.ErrAgentNotFound},
		"to itself":                               {private(sender, sender, "text"), store.ErrNothingToSelf},
		"to a group chat, as a stranger":          {toGroup(stranger, g.group, "text"), store.ErrNotMember},
		"to a group chat, banned":                 {toGroup(banned, g.group, "text"), store.ErrBanned},
		"to a deleted group chat":                 {toGroup(sender, deleted, "text"), store.ErrDeleted},
		"to an unknown group chat":                {toGroup(sender, uuid.New(), "text"), store.ErrChatNotFound},
		"to a channel as a group chat":            {toGroup(sender, channel, "text"), store.ErrChatNotFound},
		"to a channel, as a subscriber":           {toChannel(sender, channel), store.ErrNotAdmin},
		"to an unknown channel":                   {toChannel(sender, uuid.New()), store.ErrChannelNotFound},
	} {
		if err := g.DryRun(ctx, sending(test.message)); !errors.Is(err, test.want) {
			t.Errorf("the dry run of a message %s: %v, want %v", name, err, test.want)
		}
		shared := sending(test.message)
		shared.Turn = func(context.Context) (func(), error) { return nil, errors.New("a refusal needs a transaction") }
		for path, work := range map[string]store.Work{"shared": shared, "alone": sendingAlone(test.message)} {
			channels++
			id, payer := g.openChannel(channels, 1)
			begun, closed := beginning("0xpayer", sender), beginning("0xpayer", sender)
			if err := errors.Join(g.BeginSettlement(ctx, begun, time.Minute, nil), g.BeginSettlement(ctx, closed, time.Minute, nil),
				commit(ctx, g.Store, store.Done(store.Response{}), deliveryOf(closed))); err != nil {
				t.Fatal(err)
			}
			for how, one := range map[string]struct {
				closing store.Closing
				want    error
			}{
				"and a payment":        {deliveryOf(begun), test.want},
				"and a closed payment": {deliveryOf(closed), test.want}, // the rule comes first
				"and a voucher":        {store.Closing{Charge: chargeOf(id, payer, voucherPrice, sender), Encode: encoded}, test.want},
				"and a voucher that is no fit": {store.Closing{Charge: chargeOf(id, payer, 2*voucherPrice, sender), Encode: encoded},
					map[string]error{"shared": test.want, "alone": store.ErrVoucherMismatch}[path]},
			} {
				if err := commit(ctx, g.Store, work, one.closing); !errors.Is(err, one.want) {
					t.Errorf("a message %s %s, %s: %v, want %v", name, how, path, err, one.want)
				}
			}
		}
	}
	if after := g.count(`SELECT count(*) FROM messages`); after != before {
		t.Errorf("%d messages were written", after-before)
	}
	if charged := g.count(`SELECT count(*) FROM payment_channels WHERE charged > 0`); charged != 0 {
		t.Errorf("%d payment channels were charged", charged)
	}
	if open := g.count(`SELECT count(*) FROM payments WHERE state = 'settling'`); open != int64(channels) {
		t.Errorf("%d payments are open, want %d", open, channels)
	}
}
