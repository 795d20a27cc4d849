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

// headerExtensionResponses is a header of a facilitator's responses. It tells how the facilitator handled the payment's
// extensions: base64 of {"bazaar": {"status": "rejected", "rejectedReason": ...}}. It is for the operator and is never
// passed to the payer.
const headerExtensionResponses = "EXTENSION-RESPONSES"

const (
	// maxLoggedExtensions and maxLoggedRunes limit what one response can write to the log.
	maxLoggedExtensions = 8
	maxLoggedRunes      = 200
)

// opaque matches a run of characters that is longer than a transaction hash. A facilitator's reason may quote the
// payment. The parts of a payment that can be spent, in hex or base64, are such runs.
var opaque = regexp.MustCompile(`[0-9A-Za-z+/=_-]{67,}`)

// logExtensions logs the value of an EXTENSION-RESPONSES header. It ignores malformed values, because they do not
// affect the payment.
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

// loggable makes a facilitator's text safe for the log. It removes control characters, redacts what could be a
// signature or a payment, and shortens the text.
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
