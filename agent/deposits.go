package agent

import (
	"context"
	"slices"
	"time"

	"github.com/parley-chat/parley/x402"
)

// Deposits into payment channels have the limit of the day too. The server can take of a deposit only what vouchers allow, but until it
// refunds the rest, or the wallet withdraws it, that is locked. So a deposit counts for a day, or until the blockchain shows that it is
// no longer in the channel. What a server says about that does not count.

// Chain reads from the blockchain what became of payments and of deposits. [x402.Chain] does.
type Chain interface {
	Authorizations
	Channel(ctx context.Context, id string) (x402.Channel, time.Time, error)
}

// Left implements [client.Budget].
func (l *Ledger) Left(ctx context.Context) (left uint64, err error) {
	left, asks, err := l.left(ctx)
	if err == nil && l.lookAt(ctx, asks) {
		left, _, err = l.left(ctx)
	}
	return left, err
}

// left returns what a deposit may lock, and the channels to look at because deposits leave less than payments do.
func (l *Ledger) left(ctx context.Context) (left uint64, asks []string, err error) {
	err = l.locked(ctx, func(func(entry) error) error {
		limits, err := l.limits()
		counted := l.counted()
		if counted.deposits > counted.all {
			asks = l.stale()
		}
		left = limits.PerDay - min(max(counted.all, counted.deposits), limits.PerDay)
		return err
	})
	return left, asks, err
}

// firstDeposit is what a registration that was approved may deposit in addition to the limit of the day, so that there is room for the
// first day after it.
const firstDeposit = maxDeposit

// countedDeposits returns what deposits since a time have locked at most. Those whose validity has ended have arrived or never will, so
// that together they lock no more than what the blockchain shows in their channel after that. The caller has locked the ledger.
func (l *Ledger) countedDeposits(since time.Time) (sum uint64) {
	balances, room := l.balances(), uint64(firstDeposit)
	settled := map[string]struct{ all, first uint64 }{} // by channel
	for _, x := range l.exposures() {
		if x.released || x.Deposit == 0 || x.Time.Before(since) {
			continue
		}
		var first uint64
		if x.Approval != "" && isRegistration(x.Operation) {
			first = min(x.Deposit, room)
			room -= first
		}
		if x.settledBefore(balances[x.Channel].ChainTime) {
			of := settled[x.Channel]
			of.all, of.first = of.all+x.Deposit, of.first+first
			settled[x.Channel] = of
		} else {
			sum += x.Deposit - first
		}
	}
	for channel, of := range settled {
		locked := min(of.all, balances[channel].Balance)
		sum += locked - min(locked, of.first)
	}
	return sum
}

// settledBefore reports whether a deposit could not arrive any more at a time of the blockchain.
func (x *exposure) settledBefore(chainTime int64) bool {
	return x.Channel != "" && x.ValidBefore > 0 && x.ValidBefore <= chainTime
}

// balances returns the newest balance of each channel that was read.
func (l *Ledger) balances() map[string]entry {
	newest := map[string]entry{}
	for _, e := range l.entries {
		if e.Step == stepBalance {
			newest[e.Channel] = e
		}
	}
	return newest
}

// lookPause is the time between two looks at a channel.
const lookPause = time.Minute

// stale returns the channels with deposits of the last day whose balance was not read lately. The caller has locked the ledger.
func (l *Ledger) stale() (channels []string) {
	if l.chain == nil {
		return nil
	}
	now, balances := l.now(), l.balances()
	for _, x := range l.exposures() {
		fresh := now.Before(balances[x.Channel].Time.Add(lookPause))
		counts := x.Deposit > 0 && x.Channel != "" && !x.Time.Before(now.Add(-day))
		if counts && x.Network == l.network() && !fresh && !slices.Contains(channels, x.Channel) {
			channels = append(channels, x.Channel)
		}
	}
	return channels
}

// lookAt reads the balances of channels, and reports whether there is a new one. What cannot be read stays counted.
func (l *Ledger) lookAt(ctx context.Context, channels []string) (found bool) {
	limited, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for _, id := range channels {
		channel, at, err := l.chain.Channel(limited, id)
		if err != nil {
			return found
		}
		found = l.locked(ctx, func(add func(entry) error) error {
			return add(entry{Step: stepBalance, Channel: id, Balance: channel.Balance, ChainTime: at.Unix()})
		}) == nil || found
	}
	return found
}
