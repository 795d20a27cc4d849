package x402

import (
	"context"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// headerExtensionResponses is on a facilitator's answers and says what became of the payment's extensions: base64 of
// {"bazaar": {"status": "rejected", "rejectedReason": ...}}. It is for the operator and never for the payer.
const headerExtensionResponses = "EXTENSION-RESPONSES"

const (
	// maxLoggedExtensions and maxLoggedRunes bound what one response can put into the log.
	maxLoggedExtensions = 8
	maxLoggedRunes      = 200
)

// opaque is a run of characters longer than a transaction's hash. Refusals may quote the payment that they are about,
// and what it can be spent with, hex or base64, is such a run.
var opaque = regexp.MustCompile(`[0-9A-Za-z+/=_-]{67,}`)

// logExtensions logs the value of an EXTENSION-RESPONSES header. What is malformed is left out: it concerns no payment.
func (f *Facilitator) logExtensions(ctx context.Context, endpoint, header string) {
	if f.Logger == nil || header == "" {
		return
	}
	var responses map[string]jsontext.Value
	if decodeHeader(headerExtensionResponses, header, &responses) != nil {
		return
	}
	names := slices.Sorted(maps.Keys(responses))
	for _, name := range names[:min(len(names), maxLoggedExtensions)] {
		var response struct {
			Status         string         `json:"status"`
			RejectedReason jsontext.Value `json:"rejectedReason"`
		}
		if json.Unmarshal(responses[name], &response) != nil || response.Status == "" {
			continue
		}
		status, level := loggable(response.Status), slog.LevelInfo
		if status == "rejected" {
			level = slog.LevelWarn
		}
		f.Logger.LogAttrs(ctx, level, "facilitator responded about an extension",
			slog.String("endpoint", endpoint),
			slog.String("extension", loggable(name)),
			slog.String("status", status),
			slog.String("reason", loggable(text(response.RejectedReason))))
	}
}

// loggable makes a facilitator's words fit for a log: without control characters, without what could be a signature or
// a payment, and short.
func loggable(words string) string {
	words = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, words)
	words = opaque.ReplaceAllString(words, "[redacted]")
	if runes := []rune(words); len(runes) > maxLoggedRunes {
		return string(runes[:maxLoggedRunes]) + "…"
	}
	return words
}
