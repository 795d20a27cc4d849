package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

const unreadPath = "/agent/unread"

// poll gets the unread messages with a payment.
func (a *agent) poll(payment string) testkit.Reply {
	a.w.T.Helper()
	r, err := a.w.try(http.MethodGet, unreadPath, "", "X-API-KEY", a.Key, x402.HeaderPaymentSignature, payment)
	if err != nil {
		a.w.T.Error(err)
	}
	return r
}

// TestVouchersTogether: agents with a payment channel each send, poll and are rejected at the same time, on two servers. Each
// call is charged exactly if it returns 200.
func TestVouchersTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	other := newWorldOn(t, w.DatabaseURL, withChannels)
	other.Ledger, other.Facilitator = w.Ledger, w.Facilitator
	bob := w.agent("bob")
	price := testkit.Price("GET " + unreadPath)
	nobody := *bob.Agent
	nobody.ID = "agent_01k70t995eeeqsqssjfq4h8qx8"
	const rounds = 5
	var agents sync.WaitGroup
	for i := range 8 {
		here := w.agent(fmt.Sprint("agent_", i))
		there := &agent{here.Agent, other}
		payer := w.channelPayer(here.Wallet)
		here.sendWith(payer.sign(sendPath, 5000, 1_000_000), bob, "hello").Require(t, "deposit", http.StatusOK)
		agents.Go(func() {
			charged := uint64(5000)
			for n := range rounds {
				on := []*agent{here, there}[(n+i)%2]
				voucher := payer.sign(sendPath, charged+5000, 0)
				if a := on.sendWith(voucher, &agent{&nobody, w}, "to nobody"); a.Status != http.StatusNotFound || a.Charged {
					t.Errorf("a rejected send: %v, want 404 without a charge", a)
				}
				a := on.sendWith(voucher, bob, fmt.Sprint("number ", n))
				if _, extra := settledOf(t, a); a.Status != http.StatusOK || extra.ChannelState.ChargedCumulativeAmount != fmt.Sprint(charged+5000) ||
					extra.ChannelState.Balance != "1000000" {
					t.Errorf("a send: %v %+v", a, extra)
				}
				charged += 5000 + price
				on.poll(payer.signGet(unreadPath, charged)).Want(t, "a poll", http.StatusOK)
			}
		})
	}
	agents.Wait()
	if n := w.Count(`SELECT count(*) FROM messages`); n != 8*(1+rounds) {
		t.Errorf("%d messages, want %d", n, 8*(1+rounds))
	}
	w.checkChannels()
}

// TestPollWithAVoucher: a poll marks its messages as read. Its voucher returns the same messages again, because the first
// response may have been lost.
func TestPollWithAVoucher(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	price := testkit.Price("GET " + unreadPath)
	payer := w.channelPayer(bob.Wallet)
	charged := uint64(5000)
	bob.sendWith(payer.sign(sendPath, charged, testkit.Dollar), alice, "hello")
	for i, content := range []string{"", "number 1", "", "number 2"} {
		if content != "" {
			alice.send(bob, content)
		}
		charged += price
		voucher := payer.signGet(unreadPath, charged)
		first := bob.poll(voucher)
		alice.send(bob, fmt.Sprint("later ", i))
		again := bob.poll(voucher)
		if first.Status != http.StatusOK || string(again.Body) != string(first.Body) || !strings.Contains(string(first.Body), content) {
			t.Errorf("poll %d: %v, again %v", i, first, again)
		}
		charged += price
		if a := bob.poll(payer.signGet(unreadPath, charged)); !strings.Contains(string(a.Body), fmt.Sprint("later ", i)) ||
			strings.Contains(string(a.Body), "number") {
			t.Errorf("the next poll: %v", a)
		}
	}
	w.checkChannels()
}
