package payment

import (
	"context"
	"errors"
	"strings"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// ClaimNow claims everything that payment channels were charged, of one or, with id "", of all, without waiting for its time. It
// returns how many payment channels it claimed from, and how many have unclaimed vouchers. Servers may run meanwhile.
func (c *ChannelScheme) ClaimNow(ctx context.Context, id string) (claimed int, unclaimed int64, err error) {
	unclaimed, err = c.engine.store.ClaimAtOnce(ctx, c.engine.config.Network.ID, strings.ToLower(c.engine.config.Network.Asset), id)
	if err != nil {
		return 0, 0, err
	}
	c.checkKeys(ctx)
	sums, _ := c.sumUp(ctx)
	return c.claimSums(ctx, sums, 0, id), unclaimed, nil
}

// PayOutNow transfers everything that is claimed to the payee. It returns nil if nothing was due.
func (c *ChannelScheme) PayOutNow(ctx context.Context) (*x402.SettleResponse, error) {
	return c.payOutTo(ctx, strings.ToLower(c.engine.config.PayTo))
}

// RefreshAll records the state of all payment channels on the chain, and returns how many it read. It leaves out those that are being
// refunded: their refund ends with the state of the chain.
func (c *ChannelScheme) RefreshAll(ctx context.Context) (read int, err error) {
	all := store.ChannelFilter{
		States:  []string{store.PaymentChannelOpen, store.PaymentChannelDepositing},
		Network: c.engine.config.Network.ID, Asset: strings.ToLower(c.engine.config.Network.Asset),
	}
	for channel, listErr := range c.engine.store.PaymentChannels(ctx, all) {
		if listErr != nil {
			return read, errors.Join(err, listErr)
		}
		found, _, chainErr := c.chain.Channel(ctx, channel.ID)
		if chainErr == nil {
			_, chainErr = c.synced(ctx, &channel, found)
		}
		if chainErr != nil {
			err = errors.Join(err, chainErr)
			continue
		}
		read++
	}
	return read, err
}
