package x402

import (
	"bytes"
	"encoding/base64"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExtensionResponses(t *testing.T) {
	t.Parallel()
	line := func(level, endpoint, extension, status, reason string) string {
		return "level=" + level + ` msg="facilitator responded about an extension" endpoint=` + endpoint + " extension=" + extension +
			" status=" + status + " reason=" + reason + "\n"
	}
	success := line("INFO", "verify", "bazaar", "success", `""`)
	for _, row := range []struct {
		name, header string
		want         string
	}{
		{"none", "", ""},
		{"success", encoded(`{"bazaar":{"status":"success"}}`), success},
		{"processing", encoded(`{"bazaar":{"status":"processing"}}`), line("INFO", "verify", "bazaar", "processing", `""`)},
		{"rejected", encoded(`{"bazaar":{"status":"rejected","rejectedReason":"no schema"}}`),
			line("WARN", "verify", "bazaar", "rejected", `"no schema"`)},
		{"two extensions", encoded(`{"offer":{"status":"rejected","rejectedReason":"old"},"bazaar":{"status":"success"}}`),
			success + line("WARN", "verify", "offer", "rejected", "old")},
		{"one malformed, one not", encoded(`{"a":7,"b":null,"c":{},"d":{"status":7},"e":[],"bazaar":{"status":"success","rejectedReason":7}}`),
			success},
		{"control characters", encoded(`{"baz\naar":{"status":"rej\u0000ected","rejectedReason":"one\ntwo\u001b[31m\u202e\u2028"}}`),
			line("WARN", "verify", "bazaar", "rejected", "onetwo[31m")},
		{"much to say", encoded(`{"bazaar":{"status":"success","rejectedReason":"` + strings.Repeat("no ", 1000) + `"}}`),
			line("INFO", "verify", "bazaar", "success", strconv.Quote(strings.Repeat("no ", 66)+"no…"))},
		{"a signature quoted", encoded(`{"bazaar":{"status":"success","rejectedReason":"bad ` + goodSignature + `!"}}`),
			line("INFO", "verify", "bazaar", "success", `"bad [redacted]!"`)},
		{"a payment quoted", encoded(`{"bazaar":{"status":"success","rejectedReason":"bad ` + encoded(goodPayload) + `!"}}`),
			line("INFO", "verify", "bazaar", "success", `"bad [redacted]!"`)},
		{"a transaction", encoded(`{"bazaar":{"status":"success","rejectedReason":"` + hash + `"}}`),
			line("INFO", "verify", "bazaar", "success", hash)},
		{"not base64", `{"bazaar":{"status":"success"}}`, ""},
		{"base64url", base64.RawURLEncoding.EncodeToString([]byte(`{"bazaar":{"status":"success"}}`)), ""},
		{"not JSON", encoded("hello"), ""},
		{"an array", encoded(`[{"status":"success"}]`), ""},
		{"null", encoded(`null`), ""},
		{"twice the same", encoded(`{"bazaar":{"status":"success"},"bazaar":{"status":"success"}}`), ""},
		{"too long", encoded(`{"bazaar":{"status":"success","x":"` + strings.Repeat("x", maxHeaderBytes) + `"}}`), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			facilitator, _ := facilitatorReplying(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("EXTENSION-RESPONSES", row.header)
				says(200, `{"isValid":true}`)(w, r)
			})
			payload, requirements := receivedPayment(t)
			if _, err := facilitator.Verify(t.Context(), payload, requirements); err != nil {
				t.Errorf("verify without a logger: %v", err)
			}
			var log bytes.Buffer
			facilitator.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
				ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey {
						return slog.Attr{}
					}
					return a
				},
			}))
			if _, err := facilitator.Verify(t.Context(), payload, requirements); err != nil {
				t.Errorf("verify: %v", err)
			}
			if diff := cmp.Diff(row.want, log.String()); diff != "" {
				t.Errorf("the log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVeryManyExtensionResponses(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 100 {
		many.WriteString(`"e` + strconv.Itoa(1000+i) + `":{"status":"success"},`)
	}
	facilitator, _ := facilitatorReplying(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("EXTENSION-RESPONSES", encoded("{"+many.String()+`"e":{"status":"success"}}`))
		says(500, `{"success":false}`)(w, r) // logged although there is no verdict
	})
	var log bytes.Buffer
	facilitator.Logger = slog.New(slog.NewTextHandler(&log, nil))
	payload, requirements := receivedPayment(t)
	if _, err := facilitator.Settle(t.Context(), payload, requirements); err == nil {
		t.Error("settle succeeds without a verdict")
	}
	if lines := strings.Count(log.String(), "endpoint=settle"); lines != maxLoggedExtensions {
		t.Errorf("one reply about 101 extensions gives %d lines, want %d", lines, maxLoggedExtensions)
	}
}
