package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server/edge"
)

// TestInvisible: characters without a shape are seen in emoji, and where they change the shape of letters; nowhere else.
func TestInvisible(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "plain", "👩‍👩‍👧 ❤️ 1️⃣ 🏳️‍🌈", "I\u2764\ufe0fyou", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
		"می\u200cخواهم", "خانه\u200cها", "بَ\u200cبَ", "ه\u200d", "۱۴۰۲ ه\u200d.ش", "क्\u200d", "क्\u200dष", "क्\u200cष", "ශ්\u200dරී",
		"র\u200d্যাব",
		"ক্\u200cষ", "ന്\u200d", "\u0600\u0661", "\U00013000\U00013430\U00013001",
	} {
		if shown := withoutInvisible(text); shown != text {
			t.Errorf("%+q is shown as %+q, want all of it", text, shown)
		}
	}
	for text, want := range map[string]string{
		"a\u200bb": "ab", "\u200bX\u200b": "X", "Li\u00adsbon": "Lisbon", "bank\u202eknab": "bankknab", "x\ufeff": "x", "\u115fx\u3164": "x",
		"a\ufe0f": "a", "❤\ufe0e": "❤", "❤\ufe0f\ufe0f": "❤\ufe0f", "👍\u200d": "👍", "\u200d👍": "👍", "葛\U000e0100": "葛", "x\ufff9y": "xy",
		"🏴\U000e0068\U000e0069\U000e007f": "🏴", "x\U000e0041\U000e0042": "x", "a\u200db": "ab", "a\u200cb": "ab", "а\u200cб": "аб",
		"ب\u200dب": "بب", "کار\u200cا": "کارا", "ا\u200d": "ا", "ب\u200c": "ب", "\u200cب": "ب", "می\u200c\u200cخ": "میخ", "क्\u200c": "क्",
		"क\u200dष": "कष", "क\u200d\u200d्": "क्", "\u200d्": "्", "東\u200d京": "東京",
	} {
		if shown := withoutInvisible(text); shown != want {
			t.Errorf("%+q is shown as %+q, want %+q", text, shown, want)
		}
	}
}

// TestPaidOutcomes: calls fail noticeably if more than a tenth of at least ten failed in the last minute.
func TestPaidOutcomes(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_763_650_000, 0)
	for name, test := range map[string]struct {
		paid, failed int
		want         bool
	}{
		"none": {0, 0, false}, "nine of nine": {0, 9, false}, "ten of ten": {0, 10, true}, "one of ten": {9, 1, false},
		"two of ten": {8, 2, true}, "ten of a hundred": {90, 10, false}, "eleven of a hundred": {89, 11, true}, "none of many": {1000, 0, false},
	} {
		var outcomes paidOutcomes
		for i := range test.paid + test.failed {
			outcomes.add(i < test.failed, now.Add(-time.Duration(i%60)*time.Second))
		}
		outcomes.add(false, now.Add(-time.Minute)) // late
		if got := outcomes.failing(now); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if outcomes.failing(now.Add(time.Minute)) {
			t.Errorf("%s: it still fails a minute later", name)
		}
		for range 20 { // a second hand that has gone round
			outcomes.add(false, now.Add(2*time.Minute))
		}
		if outcomes.failing(now.Add(2 * time.Minute)) {
			t.Errorf("%s: old failures count", name)
		}
	}
}

// A busy machine may take longer to read the figures than a person wants to wait for the page.
// TestLimitedLines: of many requests that cost their caller nothing, few are logged, and the next line says
// how many were omitted.
func TestLimitedLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &Server{log: slog.New(slog.NewJSONHandler(&log, nil)), limitedLines: edge.NewLogLimit()}
		write := func(method string, status int) {
			c := echo.New().NewContext(httptest.NewRequest(method, "/", nil), httptest.NewRecorder())
			c.Response().Status = status
			s.logRequest(c, &record{}, 0)
		}
		for range 1000 {
			write(http.MethodGet, http.StatusTooManyRequests)
			write(http.MethodPost, statusHungUp)
			write(http.MethodOptions, http.StatusNoContent)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 10 {
			t.Errorf("3,000 free requests have %d lines, want 10", lines)
		}
		log.Reset()
		write(http.MethodGet, http.StatusOK)
		time.Sleep(time.Second)
		write(http.MethodGet, http.StatusTooManyRequests)
		var got []string
		for line := range strings.Lines(log.String()) {
			var fields map[string]any
			testkit.NoError(t, json.Unmarshal([]byte(line), &fields))
			got = append(got, fmt.Sprint(fields["status"], " ", fields["omitted"]))
		}
		if want := "[200 <nil> 429 2990]"; fmt.Sprint(got) != want {
			t.Errorf("the next lines are %v, want %s", got, want)
		}
	})
}
