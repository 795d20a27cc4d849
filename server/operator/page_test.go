package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/store"
)

// TestFormats: amounts, numbers, sizes, durations and text of others as the page shows them.
func TestFormats(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ got, want string }{
		{usd(0), "0.000"}, {usd(5000), "0.005"}, {usd(1_234_567_890_000), "1,234,567.890"}, {usd(1), "0.000001"}, {usd(-990_000), "−0.990"},
		{number(0), "0"}, {number(999), "999"}, {number(20_000_000), "20,000,000"}, {number(-1000), "−1,000"},
		{size(0), "0 B"}, {size(999), "999 B"}, {size(1000), "1.0 kB"}, {size(999_999), "1.0 MB"}, {size(123_456_789), "123 MB"},
		{size(5_000_000_000_000), "5.0 TB"},
		{Age(-time.Second), "0 s"}, {Age(59 * time.Second), "59 s"}, {Age(61 * time.Second), "1 min 1 s"}, {Age(10 * time.Minute), "10 min"},
		{Age(25 * time.Hour), "1 d 1 h"}, {Age(400 * 24 * time.Hour), "400 d"},
		{took(0), "–"}, {took(1500 * time.Microsecond), "1.5 ms"}, {took(45 * time.Millisecond), "45 ms"}, {took(90 * time.Second), "90.0 s"},
		{clean(3, "äöüß"), "äöü…"}, {clean(9, "a\u202eb\u0000c\u2066\n"), "a\ufffdb\ufffdc\ufffd\ufffd"}, {clean(9, "a\xffb"), "a\ufffdb"},
		{string(wrap(9, "a_<b>")), "a_<wbr>&lt;b&gt;"},
		{short("0x71c7656ec7ab88b098defb751b7401b5f6d8976f"), "0x71c7…976f"}, {short("0xa"), "0xa"}, {share(1, 3), "33.3"}, {share(1, 0), "0"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

// TestChart: the columns fill the plot, the highest one stays below the top line, and a day without revenue has none.
func TestChart(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, time.February, 27, 0, 0, 0, 0, time.UTC)
	days := []Day{{Date: begin, Counted: true}, {Date: begin.AddDate(0, 0, 1), PaymentSum: store.PaymentSum{Calls: 2, Amount: 7_000_000},
		Counted: true}, {Date: begin.AddDate(0, 0, 2)}}
	drawn := newChart(days)
	if len(drawn.Columns) != 3 || drawn.Lines[0].Label != "10.000" || !strings.Contains(drawn.Summary, "7.000 USD, on 2026-02-28") {
		t.Fatalf("the chart is %+v", drawn)
	}
	if c := drawn.Columns[1]; c.Height != "70.00%" || c.Y != "30.00%" || c.Label != "28" || c.Title != "2026-02-28: 7.000 USD, 2 calls" {
		t.Errorf("the second day is drawn as %+v", c)
	}
	if c := drawn.Columns[0]; c.Height != "0.00%" || c.Missing || !drawn.Columns[2].Missing {
		t.Errorf("a day without revenue is drawn as %+v, one that is not counted as %+v", c, drawn.Columns[2])
	}
	for amount, want := range map[int64]int64{0: 1_000_000, 1: 1, 1000: 1000, 1001: 2000, 3000: 5000, 6000: 10_000} {
		if got := ceiling(amount); got != want {
			t.Errorf("the line above %d is at %d, want %d", amount, got, want)
		}
	}
}

// TestRenderChannels: a page with everything that a small server does not have.
func TestRenderChannels(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	rows := make([]Operation, 12)
	page := &Page{Now: now, Service: Service{Started: now.Add(-48 * time.Hour), Channels: true}, Calls: Calls{Span: time.Hour, Rows: rows},
		Revenue: Known[Revenue]{Problem: "the database does not respond"},
		Channels: Known[Channels]{At: now, Value: Channels{States: map[string]int64{store.PaymentChannelOpen: 1200}, Unclaimed: 5_000_000,
			Lost:   1000,
			Oldest: 90 * time.Minute, ClaimAge: 24 * time.Hour, ClaimSum: 1_000_000}},
	}
	html, err := Render(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<dt>open</dt><dd>1,200</dd>", "5.000 USD", "since 1 h 30 min", "0.001 USD",
		"Claimed after 1 d or at 1.000 USD", "Last hour",
		"2 more operations", "Not read yet: the database does not respond."} {
		if !strings.Contains(string(html), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}
