package client_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/client"
)

// waitsFor makes a call that waits, and returns its status.
func (s *channelShop) waitsFor(p *client.Payer) chan int {
	status := make(chan int, 1)
	go func() {
		response, err := (&http.Client{Transport: p}).Get(s.URL + "?wait=30")
		if err != nil {
			s.t.Errorf("the call that waits: %v", err)
			status <- 0
			return
		}
		_ = response.Body.Close()
		status <- response.StatusCode
	}()
	return status
}

// holds returns a step of a fault. Other calls go on until it is released. It does not respond, or has responded without a receipt.
func (s *channelShop) holds(responded bool) (step func(http.ResponseWriter) bool, held, release chan struct{}) {
	held, release = make(chan struct{}), make(chan struct{})
	return func(http.ResponseWriter) bool {
		clear(s.answered) // a voucher is compared with its request
		s.mu.Unlock()
		held <- struct{}{}
		<-release
		s.mu.Lock()
		clear(s.answered)
		return responded
	}, held, release
}

// TestPayerWaitIsOvertaken: however many calls overtake a call that waits, it is paid from the payment channel.
func TestPayerWaitIsOvertaken(t *testing.T) {
	t.Parallel()
	shop := openChannelShop(t)
	payer := payerFrom(t, &client.MemoryChannels{})
	shop.wantCalls(payer, 1)
	step, held, release := shop.holds(false)
	hold := fault{before: step}
	shop.fail(hold, fault{}, hold, fault{}, hold, fault{}, hold, fault{})
	status := shop.waitsFor(payer)
	for n := range 4 {
		select {
		case <-held:
		case got := <-status:
			t.Fatalf("after %d calls the one that waits ends with %d, paid otherwise", n, got)
		}
		shop.call(payer)
		release <- struct{}{}
	}
	if got := <-status; got != http.StatusOK {
		t.Errorf("the call that waits has status %d", got)
	}
	shop.wantTypes("deposit" + strings.Repeat(" voucher", 9))
	shop.wantSums(6*channelPrice, channelDeposit)
}

// TestPayerWaitWithoutReceipt: a call that waits is charged first, and another call after it; then its response comes; a proxy removed
// the receipt. The next voucher is for no more than was bought.
func TestPayerWaitWithoutReceipt(t *testing.T) {
	t.Parallel()
	shop := openChannelShop(t)
	payer := payerFrom(t, &client.MemoryChannels{})
	shop.wantCalls(payer, 1)
	step, held, release := shop.holds(true)
	shop.fail(fault{after: step})
	status := shop.waitsFor(payer)
	<-held
	shop.wantCalls(payer, 1)
	release <- struct{}{}
	if got := <-status; got != http.StatusOK {
		t.Errorf("the call that waits has status %d", got)
	}
	shop.wantCalls(payer, 1)
	shop.wantSums(4*channelPrice, channelDeposit)
	shop.mu.Lock()
	defer shop.mu.Unlock()
	if shop.highest != 4*channelPrice {
		t.Errorf("the highest voucher is for %d, and four calls cost %d", shop.highest, 4*channelPrice)
	}
}
