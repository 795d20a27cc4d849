package client_test

import (
	"net/http"
	"testing"

	"github.com/parley-chat/parley/client"
)

// TestPayerWaitWithoutReceipt: a call that waits is charged first, and another call after it; then its response comes; a proxy removed
// the receipt. The next voucher is for no more than was bought.
func TestPayerWaitWithoutReceipt(t *testing.T) {
	t.Parallel()
	shop := openChannelShop(t)
	payer := payerFrom(t, &client.MemoryChannels{})
	shop.wantCalls(payer, 1)
	held, release, status := make(chan struct{}), make(chan struct{}), make(chan int, 1)
	shop.fail(fault{after: func(http.ResponseWriter) bool {
		clear(shop.answered) // a voucher is compared with its request
		shop.mu.Unlock()
		close(held)
		<-release
		shop.mu.Lock()
		return true
	}})
	go func() {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, shop.URL+"?wait=30", nil)
		if err != nil {
			t.Error(err)
		}
		response, err := (&http.Client{Transport: payer}).Do(request)
		if err != nil {
			t.Errorf("the call that waits: %v", err)
			status <- 0
			return
		}
		_ = response.Body.Close()
		status <- response.StatusCode
	}()
	<-held
	shop.wantCalls(payer, 1)
	close(release)
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
