//go:build attack

package attack

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// What a caller can do to others with the few cents that its calls cost.

const searchPath = "/chat/private/search"

// raw is an order as HTTP/1.1.
func (o *order) raw() string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: parley\r\nContent-Type: application/json\r\nX-API-KEY: %s\r\nPAYMENT-SIGNATURE: "+
		"%s\r\nContent-Length: %d\r\n\r\n%s",
		o.path, o.headers[1], o.header, len(o.body), o.body)
}

// TestHostilePaidPages: 300 callers pay for pages of 2 MB, which wait for a slow facilitator, and then read nothing of them.
func TestHostilePaidPages(t *testing.T) {
	x := newTrial(t)
	reader, chat := x.largeChat(64, func(n int) string { return fmt.Sprintf("%06d", n) + strings.Repeat("<", 16_300) })
	wallet := x.Wallet(100 * testkit.Dollar)
	body := fmt.Sprintf(`{"chat_id":%q,"query":"<<"}`, chat)
	x.proxy.breakWith(onSettle(delayed(time.Second, pass)))
	x.measure("paid pages of 2 MB that nobody reads", func(ctx context.Context) {
		orders := prepared(300, func(int) order { return forged(wallet, reader.key, searchPath, body) })
		var next, paid atomic.Int64
		flood(ctx, len(orders), 1, func(ctx context.Context, _, _ int) {
			connection, err := x.connect(ctx, attackerAddress)
			if err != nil {
				return
			}
			defer func() { _ = connection.Close() }()
			if _, err := io.WriteString(connection, orders[next.Add(1)-1].raw()); err != nil {
				return
			}
			_ = connection.SetReadDeadline(time.Now().Add(20 * time.Second))
			var begin [12]byte
			if _, err := io.ReadFull(connection, begin[:]); err == nil && strings.HasSuffix(string(begin[:]), " 200") {
				paid.Add(1)
			}
			<-ctx.Done()
		})
		t.Logf("%d of %d are paid", paid.Load(), len(orders))
		if paid.Load() == 0 {
			t.Error("no page was paid")
		}
	})
	x.check()
}
