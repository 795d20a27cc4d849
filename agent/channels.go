package agent

import (
	"context"
	"encoding/json"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/lockfile"
)

// channels keeps the payment channels in the wallet's file: whoever notices that the file lacks payments notices that it lacks deposits. It
// implements [client.PaymentChannelStore].
type channels struct{ *Ledger }

// Lock gives a channel to one call of all processes.
func (c channels) Lock(ctx context.Context, id string) (func(), error) {
	path, err := c.callLock(id)
	if err != nil {
		return nil, err
	}
	lock, err := lockfile.Wait(ctx, path)
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

// Load returns a channel. What was signed last is in the payments, also if the process was killed before it could save the channel.
func (c channels) Load(id string) (client.PaymentChannel, error) {
	var channel client.PaymentChannel
	found, err := c.load("WHERE id = ?", id)
	if len(found) > 0 {
		channel = found[0]
	}
	if err != nil {
		return channel, err
	}
	signed, err := value[uint64](context.Background(), c.db,
		"SELECT coalesce(max(cumulative), 0) FROM payments WHERE channel = ? AND signed", id)
	channel.Signed = max(channel.Signed, signed)
	return channel, err
}

// Save replaces a channel.
func (c channels) Save(id string, channel client.PaymentChannel) error {
	content, err := json.Marshal(channel)
	if err != nil {
		return err
	}
	return c.exec(context.Background(), "INSERT OR REPLACE INTO channels (id, content) VALUES (?, ?)", id, string(content))
}

// All returns the channels.
func (c channels) All() ([]client.PaymentChannel, error) { return c.load("") }

func (c channels) load(where string, arguments ...any) ([]client.PaymentChannel, error) {
	return collect(context.Background(), c.db, scanJSON[client.PaymentChannel], "SELECT content FROM channels "+where, arguments...)
}
