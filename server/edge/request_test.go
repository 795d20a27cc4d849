package edge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// newLimited returns connections that refuse with an empty response.
func newLimited(limits Limits) *Connections {
	return New(limits, time.Minute, func(int, string) (http.Header, []byte) { return http.Header{}, nil })
}

// deadlines records whether a request's reading, or the writing of its response, was ended.
type deadlines struct {
	http.ResponseWriter
	ended, writeEnded bool
	limit             time.Duration // of the writing, about
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.limit = time.Until(at).Round(time.Second)
	d.writeEnded = d.limit <= 0
	return nil
}

// TestUnreadResponsesMakeRoom: a request at work is not displaced. One whose response is being written is, because its caller may not read.
func TestUnreadResponsesMakeRoom(t *testing.T) {
	t.Parallel()
	all := newLimited(Limits{Connections: 2, ConnectionsPerAddress: 2})
	begin := func(address string) (*Request, *deadlines) {
		w := &deadlines{ResponseWriter: httptest.NewRecorder()}
		return all.begin(httptest.NewRequest(http.MethodPost, "/", nil), w, netip.MustParsePrefix(address+"/32"), 1000), w
	}
	first, firstWrites := begin("192.0.2.1")
	second, secondWrites := begin("192.0.2.1")
	for _, r := range []*Request{first, second} {
		testkit.NoError(t, r.Finish())
	}
	if r, _ := begin("192.0.2.2"); r != nil {
		t.Fatal("a request at work is displaced")
	}
	if first.respond(); firstWrites.limit != writeTime {
		t.Errorf("a response that is not paid for may take %s, want %s", firstWrites.limit, writeTime)
	}
	if r, _ := begin("192.0.2.2"); r == nil || !firstWrites.writeEnded || secondWrites.writeEnded {
		t.Errorf("a request of another address is admitted: %t; the response ends: %t, that at work: %t", r != nil, firstWrites.writeEnded,
			secondWrites.writeEnded)
	}
	second.Deliver(0, true)
	second.respond()
	first.end()
	second.end()
	if all.memory.size != 1000 || all.requests.Shares != 1 {
		t.Errorf("%d bytes of %d requests are held at the end, want those of the last one", all.memory.size, all.requests.Shares)
	}
	refused, refusedWrites := begin("192.0.2.1") // before its body was read
	refused.respond()
	for range 2 {
		begin("192.0.2.2")
	}
	if !refusedWrites.writeEnded {
		t.Error("the response to a request whose body was not read does not end")
	}
}

// TestPaidResponsesHaveABudget: when responses of paid calls that nobody reads take too much, the oldest of the address that holds most
// ends. What is read or ended does not count.
func TestPaidResponsesHaveABudget(t *testing.T) {
	t.Parallel()
	all := newLimited(DefaultLimits())
	const part = maxSentBytes / 16
	respond := func(address string, bytes int) (*Request, *deadlines) {
		t.Helper()
		w := &deadlines{ResponseWriter: httptest.NewRecorder()}
		r := all.begin(httptest.NewRequest(http.MethodPost, "/", nil), w, netip.MustParsePrefix(address+"/32"), 1000)
		testkit.NoError(t, r.Finish())
		r.Deliver(bytes, true)
		if r.respond(); w.limit != paidWriteTime && !w.writeEnded {
			t.Errorf("a response that is paid for may take %s, want %s", w.limit, paidWriteTime)
		}
		return r, w
	}
	_, other := respond("192.0.2.2", part)
	read, _ := respond("192.0.2.1", part)
	var writes []*deadlines
	for range 15 {
		_, w := respond("192.0.2.1", part)
		writes = append(writes, w)
		if len(writes) == 1 {
			read.end()
		}
	}
	if all.sent.size != maxSentBytes || other.writeEnded || writes[0].writeEnded {
		t.Errorf("%d bytes are held and one has ended, want %d and none", all.sent.size, maxSentBytes)
	}
	respond("192.0.2.3", part)
	if all.sent.size != maxSentBytes || other.writeEnded || !writes[0].writeEnded || writes[1].writeEnded {
		t.Errorf("%d bytes are held; the oldest of the largest has ended: %t, the next: %t, that of another address: %t",
			all.sent.size, writes[0].writeEnded, writes[1].writeEnded, other.writeEnded)
	}
	if _, w := respond("192.0.2.4", maxSentBytes); !w.writeEnded {
		t.Error("a response that is larger than all others does not end")
	}
}

// TestNoAddressTakesAllRoom: an address has at most as many requests at work as are not at work, so that others find room. What ends, or
// waits for its caller again, leaves room.
func TestNoAddressTakesAllRoom(t *testing.T) {
	t.Parallel()
	all := newLimited(Limits{Connections: 8, ConnectionsPerAddress: 7})
	var working []*Request
	work := func(address string) (n int) {
		for {
			w := &deadlines{ResponseWriter: httptest.NewRecorder()}
			r := all.begin(httptest.NewRequest(http.MethodPost, "/", nil), w, netip.MustParsePrefix(address+"/32"), 1000)
			if r == nil {
				return n
			}
			switch err := r.Finish(); {
			case err == nil:
				working = append(working, r)
				n++
			case !errors.Is(err, ErrCrowded):
				t.Fatal(err)
			default:
				r.end()
				return n
			}
		}
	}
	for _, step := range []struct {
		address string
		want    int
	}{{"192.0.2.1", 4}, {"192.0.2.2", 2}, {"192.0.2.3", 1}, {"192.0.2.4", 1}, {"192.0.2.5", 0}} {
		if got := work(step.address); got != step.want {
			t.Errorf("%s has %d requests at work, want %d", step.address, got, step.want)
		}
	}
	working[0].respond()
	working[0].end()
	working[1].end()
	if got := work("192.0.2.5"); got != 1 {
		t.Errorf("when two have ended, a further address has %d requests at work, want 1", got)
	}
	for _, r := range working[2:] {
		r.end()
	}
	if working := all.requests.Shares - all.requests.size; len(all.requests.holders) != 0 || working != 0 {
		t.Errorf("at the end %d requests are at work, of %v", working, all.requests.holders)
	}
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.ended = !at.IsZero() && at.Before(time.Now())
	return nil
}

// TestBodiesHaveABudget: when unpaid headers and bodies hold too much, the oldest unfinished request of the address that holds most ends.
// What is complete stays and counts; what is released or ended does not count. A small request is never displaced.
func TestBodiesHaveABudget(t *testing.T) {
	t.Parallel()
	all := newLimited(DefaultLimits())
	begin := func(address string, bytes int) (*Request, *deadlines) {
		t.Helper()
		w := &deadlines{ResponseWriter: httptest.NewRecorder()}
		r := all.begin(httptest.NewRequest(http.MethodPost, "/", nil), w, netip.MustParsePrefix(address+"/32"), 1000)
		if r == nil {
			t.Fatal("a request is refused")
		}
		_ = r.hold(bytes)
		return r, w
	}
	const part = maxHeldBytes / 32
	finished, _ := begin("192.0.2.1", 10*part)
	testkit.NoError(t, finished.Finish())
	oldest, oldestReads := begin("192.0.2.1", 5*part)
	newer, newerReads := begin("192.0.2.1", 5*part)
	honest, honestReads := begin("192.0.2.2", 11*part)
	if oldestReads.ended || newerReads.ended || honestReads.ended {
		t.Fatal("31 parts of 32 displace a request")
	}
	_ = honest.hold(2 * part)
	if !oldestReads.ended || newerReads.ended || honestReads.ended {
		t.Errorf("33 parts of 32: ended are the oldest %t, a newer one %t, another address's %t; want only the oldest of the address that "+
			"holds 20 parts", oldestReads.ended, newerReads.ended, honestReads.ended)
	}
	if err := oldest.hold(1); !errors.Is(err, ErrDisplaced) {
		t.Errorf("a displaced request may hold more: %v", err)
	}
	if err := oldest.Finish(); !errors.Is(err, ErrDisplaced) {
		t.Errorf("a displaced request finishes: %v", err)
	}
	finished.Release()
	finished.end()
	oldest.end()
	honest.end()
	if all.memory.size != 5*part+1000 || all.requests.Shares != 1 {
		t.Errorf("%d bytes of %d requests are held at the end, want those of the newer one", all.memory.size, all.requests.Shares)
	}

	newer.end()

	for _, bytes := range []int{16 * part, 16*part - 8<<10} { // complete requests hold all
		r, _ := begin("192.0.2.3", bytes)
		testkit.NoError(t, r.Finish())
	}
	small, smallReads := begin("192.0.2.4", 10<<10)
	if err := small.Finish(); err != nil || smallReads.ended {
		t.Errorf("a request of 10 KiB is displaced for its bytes: %v", err)
	}
	if _, largeReads := begin("192.0.2.5", 20<<10); !largeReads.ended {
		t.Error("a request of 20 KiB finds room beside those that hold all")
	}
}

// TestPipelinedHeadersAreCounted: what is read together with a request may be headers of the next one. It counts against the budget until
// that one is complete.
func TestPipelinedHeadersAreCounted(t *testing.T) {
	t.Parallel()
	const complete = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, test := range map[string]struct {
		sent string
		want int
	}{
		"one request":              {complete, 0},
		"unfinished headers":       {complete + strings.Repeat("a:\n", 1000), 1000 * perHeader},
		"more than a buffer holds": {complete + strings.Repeat("\n", 10_000), bufferedLines * perHeader},
	} {
		all := newLimited(DefaultLimits())
		caller, conn := net.Pipe()
		c := all.admit(conn)
		go func() { _, _ = io.WriteString(caller, test.sent) }()
		if _, err := io.ReadFull(c, make([]byte, len(test.sent))); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			state http.ConnState
			want  int
		}{{http.StateActive, 0}, {http.StateIdle, test.want}, {http.StateActive, 0}} {
			if all.observe(c, step.state); all.memory.size != step.want {
				t.Errorf("%s, connection %s: %d bytes are held, want %d", name, step.state, all.memory.size, step.want)
			}
		}
	}
}

// TestLimitedLines: of many broken connections few are logged.
func TestLimitedLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		broken := connectionLog{slog.New(slog.NewJSONHandler(&log, nil)), NewLogLimit()}
		for range 1000 {
			_, _ = fmt.Fprintln(broken, "http2: server connection error")
		}
		if lines := strings.Count(log.String(), "\n"); lines != 10 {
			t.Errorf("1,000 broken connections have %d lines, want 10", lines)
		}
	})
}
