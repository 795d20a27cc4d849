//go:build attack

package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// connect opens a bare connection from an address.
func (x *trial) connect(ctx context.Context, address string) (net.Conn, error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 5 * time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", x.s.listen)
	if err != nil && ctx.Err() == nil {
		x.tally.add(0, "", 0, "")
	}
	return connection, err
}

func hangUp(connection net.Conn) { _ = connection.Close() }

// onlyOtherAddress leaves the honest caller of another address: these attacks displace what is unfinished at their own ones.
func (x *trial) onlyOtherAddress() {
	x.T.Helper()
	x.withHonest()
	x.honest = slices.DeleteFunc(x.honest, func(h *honest) bool { return h.where != "another address" })
}

// These attacks open at most so many connections and send at most so many bytes in a second: their work must not take the time of those
// who are measured.
const (
	connectRate = 600
	sendRate    = 50 << 20
)

// reopened calls use in so many workers, each of which opens a connection as soon as its last one has ended, at most
// rate connections a second.
// use returns when the connection has ended.
func (x *trial) reopened(ctx context.Context, workers, addresses, rate int, use func(net.Conn)) {
	pause := time.Duration(workers) * time.Second / time.Duration(rate)
	flood(ctx, workers, 1_000, func(ctx context.Context, worker, round int) {
		wait := pause
		if round == 0 {
			wait = pause * time.Duration(worker) / time.Duration(workers)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		connection, err := x.connect(ctx, fmt.Sprintf("127.0.1.%d", 1+worker%addresses))
		if err != nil {
			return
		}
		defer hangUp(connection)
		defer context.AfterFunc(ctx, func() { hangUp(connection) })()
		use(connection)
	})
}

// fromAddresses keeps more connections of n addresses busy than the server admits, each with a request that never ends: begin is sent at
// once, and a further byte every three seconds. A connection that is closed is opened again.
func (x *trial) fromAddresses(ctx context.Context, n int, begin string) {
	x.reopened(ctx, 4400, n, min(connectRate, sendRate/len(begin)), func(connection net.Conn) { // 4,096 are admitted
		for text := begin; ; text = " " {
			_ = connection.SetWriteDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.WriteString(connection, text); err != nil {
				break
			}
			_ = connection.SetReadDeadline(time.Now().Add(3 * time.Second))
			if _, err := io.Copy(io.Discard, connection); !errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
		}
		x.tally.add(0, "", 0, "")
	})
}

// TestHostileUnfinishedBodies: bodies of 190,000 bytes that lack their end, slow ones of a few bytes, and headers
// behind a complete request,
// on more connections of four or eight addresses than the server admits, take little memory and keep nobody at other addresses out.
func TestHostileUnfinishedBodies(t *testing.T) {
	x := newTrial(t)
	x.onlyOtherAddress()
	head := "POST " + sendPath + " HTTP/1.1\r\nHost: parley\r\nContent-Type: application/json\r\n"
	body := `{"content":"` + strings.Repeat("a", 190_000)
	for _, attack := range []struct {
		name, begin string
		addresses   []int
	}{
		{"bodies of 190,000 bytes without their end", head + "Content-Length: 190100\r\n\r\n" + body, []int{4, 8}},
		{"the same with a payment that is none", head + "PAYMENT-SIGNATURE: x\r\nContent-Length: 190100\r\n\r\n" + body, []int{4, 8}},
		{"chunks of 15 KiB without their end", head + "Transfer-Encoding: chunked\r\n\r\n3c00\r\n" + body[:15<<10] + "\r\n", []int{4}},
		{"slow bodies of 130 bytes", head + "Content-Length: 130\r\n\r\n{", []int{4}},
		{"headers of 1.9 MB without their end", head + "X-Long: " + strings.Repeat("a", 1900<<10), []int{4}},
		{"headers of 30 KB and slow bodies", head + "X-Long: " + strings.Repeat("a", 30_000) + "\r\nContent-Length: 130\r\n\r\n{", []int{4}},
		{"1,300 headers behind a complete request", "GET /health HTTP/1.1\r\nHost: parley\r\n\r\nGET /health HTTP/1.1\r\n" +
			strings.Repeat("a:\n", 1300), []int{4}},
	} {
		for _, addresses := range attack.addresses {
			x.measure(fmt.Sprintf("%s, from %d addresses", attack.name, addresses),
				func(ctx context.Context) { x.fromAddresses(ctx, addresses, attack.begin) })
		}
	}
	x.check()
}
