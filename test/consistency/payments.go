package consistency

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/parley-chat/parley/x402"
)

// payments is what a recorder knows of payment channels.
type payments struct {
	vouchers map[string]*voucher
	order    []*voucher
	seen     []seen
}

// voucher is a voucher that pays for one call. Its attempts are all requests with it.
type voucher struct {
	channel    string
	max, price int64
	call       string
	begin, end int64
	charged    bool
	unknown    bool
}

// seen is what a response tells of a payment channel.
type seen struct {
	channel    string
	charged    int64
	begin, end int64
}

// note records a request that is paid from a payment channel; a refund is none.
func (p *payments) note(paid *x402.BatchPayment, call string, a attempt, header http.Header) {
	channel := strings.ToLower(paid.Payload.Voucher.ChannelID)
	most, err := strconv.ParseInt(paid.Payload.Voucher.MaxClaimableAmount, 10, 64)
	price, _ := strconv.ParseInt(paid.Accepted.Amount, 10, 64)
	if err != nil {
		return
	}
	name := fmt.Sprint(channel, " ", most, " ", call)
	v := p.vouchers[name]
	if v == nil {
		v = &voucher{channel: channel, max: most, price: price, call: call, begin: a.begin}
		p.vouchers[name] = v
		p.order = append(p.order, v)
	}
	v.begin = min(v.begin, a.begin)
	v.unknown = v.unknown || a.unknown
	if header == nil {
		return
	}
	saw := func(charged uint64) {
		p.seen = append(p.seen, seen{channel, int64(charged), a.begin, a.end}) //nolint:gosec // small
	}
	if settled, err := x402.DecodeSettleResponse(header.Get(x402.HeaderPaymentResponse)); err == nil && settled.Success {
		extra, err := x402.DecodeBatchExtra(settled.Extra)
		if err != nil {
			return
		}
		charged, known := extra.ChannelState.Charged()
		switch {
		case extra.ChargedAmount != "0" && a.status == http.StatusOK:
			if !v.charged || a.end < v.end {
				v.charged, v.end = true, a.end
			}
			if known && int64(charged) != v.max { //nolint:gosec // small
				saw(charged)
			}
		case known:
			saw(charged)
		}
		return
	}
	required, err := x402.DecodePaymentRequired(header.Get(x402.HeaderPaymentRequired))
	if err != nil {
		return
	}
	for _, offer := range required.Accepts {
		if state, _, ok := x402.Correction(offer); ok && strings.EqualFold(state.ChannelID, channel) {
			if charged, known := state.Charged(); known {
				saw(charged)
			}
		}
	}
}

// partitions are the histories of the payment channels.
func (p *payments) partitions() (all []*Partition) {
	of := map[string]*Partition{}
	get := func(channel string) *Partition {
		if of[channel] == nil {
			of[channel] = &Partition{Kind: "payment channel", Name: channel[:10], strict: true, initial: log{}}
			all = append(all, of[channel])
		}
		return of[channel]
	}
	for _, v := range p.order {
		path, _, _ := strings.Cut(v.call, "\n")
		operation := &op{begin: v.begin, end: v.end, what: fmt.Sprintf("%s is charged %d with the voucher for %d", path, v.price, v.max)}
		switch {
		case v.charged:
			operation.appends(v.max-v.price, v.max)
		case v.unknown:
			operation.end, operation.indefinite, operation.what = never, true, operation.what+", or not"
			operation.appends(v.max-v.price, v.max)
		default:
			continue
		}
		get(v.channel).add(operation)
	}
	for _, s := range p.seen {
		operation := &op{begin: s.begin, end: s.end, what: fmt.Sprintf("a response says that %d was charged in all", s.charged)}
		operation.reads(s.charged)
		get(s.channel).add(operation)
	}
	return all
}
