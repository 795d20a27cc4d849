//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-chat/parley/x402"
)

// channelDeposit is the deposit of a payment channel: 1,000 USD, more than a run charges.
const channelDeposit = 1_000_000_000

// agentsPerClient is for how many agents a client calls at most: each calls more often than a server forgets its key.
const agentsPerClient = 16

// paymentChannel is an agent's payment channel. The next voucher is for charged plus the price.
type paymentChannel struct {
	signer  *x402.ChannelSigner
	charged uint64
}

// drive sends an operation's requests and measures. A short run first warms up and shows how many payments to sign.
func (d *dataset) drive(ctx context.Context, o operation, clients int, servers ...*process) (result, error) {
	if err := d.rewind(ctx, o); err != nil {
		return result{}, err
	}
	if !o.confirms { // of which each request has a cursor
		o.requests = o.requests[:min(len(o.requests), agentsPerClient*clients)]
	}
	s, err := d.newSigner(ctx, servers[0].url, o)
	if err != nil {
		return result{}, err
	}
	for _, server := range servers[1:] {
		s.hosts = append(s.hosts, strings.TrimPrefix(server.url, "http://"))
	}
	limit := time.Duration(d.seconds) * time.Second
	signed, err := s.sign(ctx, max(perRole, 6*clients)) // each caller has a page to confirm
	if err != nil {
		return result{}, err
	}
	warm, err := s.send(ctx, signed, clients, limit)
	if err != nil {
		return result{}, err
	}
	if signed, err = s.sign(ctx, int(1.5*float64(len(warm.latencies))*limit.Seconds()/warm.took.Seconds())+100); err != nil {
		return result{}, err
	}
	runtime.GC() // now, not during the measurement
	return d.measure(ctx, servers, func() (sample, error) { return s.send(ctx, signed, clients, limit) })
}

// signer writes an operation's requests, each with the payment that the server requires, and sends them.
type signer struct {
	hosts     []string // client i is connected to host i modulo their number
	operation operation
	required  *x402.PaymentRequired // nil: the operation is free
	price     uint64                // of a voucher
	channels  []*paymentChannel     // of the callers of the requests; nil unless the server offers them first
	every     time.Duration         // between two requests; 0: clients send when they have a response
	wanted    int                   // the status of responses
	cursors   []string              // of the last pages, by caller; nil if nothing is confirmed
}

// newSigner reads the price of an operation. As official clients do, it pays with the first scheme of the 402. It opens
// the payment channels that the callers do not have yet.
func (d *dataset) newSigner(ctx context.Context, url string, o operation) (*signer, error) {
	s := &signer{hosts: []string{strings.TrimPrefix(url, "http://")}, operation: o, wanted: http.StatusOK}
	if o.unpaid {
		s.wanted = http.StatusPaymentRequired
		return s, nil
	}
	path, _, _ := strings.Cut(o.requests[0].target, "?")
	request, err := http.NewRequestWithContext(ctx, o.method, url+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusPaymentRequired {
		return s, nil
	}
	if s.required, err = x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired)); err != nil {
		return nil, err
	}
	if s.required.Accepts[0].Scheme == x402.SchemeBatch {
		err = s.openChannels(ctx, d)
	}
	if o.confirms {
		s.cursors = slices.Repeat([]string{firstCursor}, perRole)
	}
	return s, err
}

// openChannels makes one call with a deposit for each caller that has no payment channel.
func (s *signer) openChannels(ctx context.Context, d *dataset) (err error) {
	offer := s.required.Accepts[0]
	if s.price, err = strconv.ParseUint(offer.Amount, 10, 63); err != nil {
		return err
	}
	opening, ctx := errgroup.WithContext(ctx)
	opening.SetLimit(16)
	s.channels = make([]*paymentChannel, len(s.operation.requests))
	for i, request := range s.operation.requests {
		channel := d.channels[request.caller.id]
		if channel == nil {
			channel = &paymentChannel{charged: s.price}
			if channel.signer, err = x402.NewChannelSigner(x402.NewKeySigner(request.caller.wallet), "0x"+strings.Repeat("0", 64),
				offer); err != nil {
				return err
			}
			d.channels[request.caller.id] = channel
			opening.Go(func() error {
				wire, err := s.write(ctx, request, &voucher{channel, s.price, channelDeposit})
				if err == nil {
					_, err = s.post(ctx, [][]byte{wire}, 0, 1, time.Now(), time.Now().Add(time.Minute))
				}
				return err
			})
		}
		s.channels[i] = channel
	}
	return opening.Wait()
}

// voucher is what to sign for a payment channel.
type voucher struct {
	channel      *paymentChannel
	due, deposit uint64
}

// sign writes n requests, each with its own payment, before the measurement starts. The vouchers of a payment channel
// are in the order of the requests.
func (s *signer) sign(ctx context.Context, n int) ([][]byte, error) {
	vouchers := make([]*voucher, n)
	due := map[*paymentChannel]uint64{}
	for i := range vouchers {
		if s.channels != nil {
			channel := s.channels[i%len(s.channels)]
			due[channel] += s.price
			vouchers[i] = &voucher{channel: channel, due: channel.charged + due[channel]}
		}
	}
	signed := make([][]byte, n)
	signing := errgroup.Group{}
	workers := runtime.NumCPU()
	for worker := range workers {
		signing.Go(func() (err error) {
			for i := worker; i < n && err == nil; i += workers {
				signed[i], err = s.write(ctx, s.operation.requests[i%len(s.operation.requests)], vouchers[i])
			}
			return err
		})
	}
	return signed, signing.Wait()
}

// write writes a request with its payment, which is a voucher unless that is nil.
func (s *signer) write(ctx context.Context, r request, v *voucher) ([]byte, error) {
	var wire bytes.Buffer
	fmt.Fprintf(&wire, "%s %s HTTP/1.1\r\nHost: %s\r\nX-API-KEY: %s\r\n", s.operation.method, r.target, s.hosts[0], r.caller.key)
	if s.required != nil {
		header, err := s.pay(ctx, r.caller, v)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&wire, "%s: %s\r\n", x402.HeaderPaymentSignature, header)
	}
	if r.body != nil {
		fmt.Fprintf(&wire, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(r.body))
	}
	fmt.Fprintf(&wire, "\r\n%s", r.body)
	return wire.Bytes(), nil
}

// pay returns the value of PAYMENT-SIGNATURE.
func (s *signer) pay(ctx context.Context, caller agent, v *voucher) (string, error) {
	if v == nil {
		payload, err := x402.Sign(ctx, x402.NewKeySigner(caller.wallet), s.required.Accepts[0], &s.required.Resource, s.required.Extensions,
			time.Now())
		if err != nil {
			return "", err
		}
		return x402.EncodePaymentPayload(payload)
	}
	payment, err := v.channel.signer.Sign(ctx, v.due, v.deposit, time.Now())
	if err != nil {
		return "", err
	}
	payment.Accepted, payment.Resource, payment.Extensions = s.required.Accepts[0], &s.required.Resource, s.required.Extensions
	return x402.EncodeBatchPayment(payment)
}

// send sends written requests until they or the time run out. Each client has its own connection. Of n clients client i
// sends the requests i, i+n, …, so the calls of one agent are in order: n divides the number of agents.
func (s *signer) send(ctx context.Context, requests [][]byte, clients int, limit time.Duration) (sample, error) {
	sending, ctx := errgroup.WithContext(ctx)
	all := make([][]time.Duration, clients)
	began := time.Now()
	for client := range clients {
		sending.Go(func() (err error) {
			all[client], err = s.post(ctx, requests, client, clients, began, began.Add(limit))
			return err
		})
	}
	err := sending.Wait()
	took := time.Since(began)
	for client, sent := range all {
		for i := 0; i < len(sent) && s.channels != nil; i++ {
			s.channels[(client+i*clients)%len(s.channels)].charged += s.price
		}
	}
	latencies := slices.Concat(all...)
	if err == nil && len(latencies) == 0 {
		err = errors.New("no request was sent")
	}
	return sample{latencies, took}, err
}

// post sends every step-th request on one connection and returns how long the responses took, from when the request was due.
func (s *signer) post(
	ctx context.Context, requests [][]byte, first, step int, began, until time.Time,
) (latencies []time.Duration, err error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.hosts[first%len(s.hosts)])
	if err != nil {
		return nil, err
	}
	defer connection.Close() //nolint:errcheck // nothing is lost
	responses, body := bufio.NewReaderSize(connection, 64<<10), bytes.Buffer{}
	for i := first; i < len(requests) && ctx.Err() == nil; i += step {
		sent := time.Now()
		if sent.After(until) {
			break
		}
		wire, tries := requests[i], 1
		if s.cursors != nil {
			wire, tries = bytes.Replace(wire, []byte(firstCursor), []byte(s.cursors[i%perRole]), 1), 20
		}
		if s.every > 0 {
			tries, sent = 20, began.Add(time.Duration(i)*s.every)
			time.Sleep(time.Until(sent))
		}
		for ; tries > 0; tries-- { // a server that is too busy gets the same payment again
			if _, err = connection.Write(wire); err == nil {
				err = readResponse(responses, s.wanted, &body)
			}
			if err == nil || !strings.HasPrefix(err.Error(), "status 503") {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			return latencies, err
		}
		latencies = append(latencies, time.Since(sent))
		if s.cursors != nil {
			s.cursors[i%perRole] = "read_through=" + string(cursor.FindSubmatch(body.Bytes())[1]) // each page has one
		}
	}
	return latencies, ctx.Err()
}
