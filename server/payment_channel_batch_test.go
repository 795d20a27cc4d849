package server_test

import (
	"fmt"
	"net/http"
	"strings"
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
