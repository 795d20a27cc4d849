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
func (e *Engine) ClaimNow(ctx context.Context, id string) (claimed int, unclaimed int64, err error) {
	unclaimed, err = e.store.ClaimAtOnce(ctx, e.config.Network.ID, strings.ToLower(e.config.Network.Asset), id)
	if err != nil {
		return 0, 0, err
	}
	e.checkKeys(ctx)
	sums, _ := e.sumUp(ctx)
	return e.claimSums(ctx, sums, 0, id), unclaimed, nil
}

// PayOutNow transfers everything that is claimed to the payee. It returns nil if nothing was due.
func (e *Engine) PayOutNow(ctx context.Context) (*x402.SettleResponse, error) {
	return e.payOutTo(ctx, strings.ToLower(e.config.PayTo))
}

// RefreshAll records the state of all payment channels on the chain, and returns how many it read. It leaves out those that are being
// refunded: their refund ends with the state of the chain.
func (e *Engine) RefreshAll(ctx context.Context) (read int, err error) {
	all := store.ChannelFilter{
		States:  []string{store.PaymentChannelOpen, store.PaymentChannelDepositing},
		Network: e.config.Network.ID, Asset: strings.ToLower(e.config.Network.Asset),
	}
	for channel, listErr := range e.store.PaymentChannels(ctx, all) {
		if listErr != nil {
			return read, errors.Join(err, listErr)
		}
		found, _, chainErr := e.channels.chain.Channel(ctx, channel.ID)
		if chainErr == nil {
			_, chainErr = e.synced(ctx, &channel, found)
		}
		if chainErr != nil {
			err = errors.Join(err, chainErr)
			continue
		}
		read++
	}
	return read, err
}
