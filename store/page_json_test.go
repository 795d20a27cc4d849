package store

import (
	"encoding/json"
	"testing"
)

// TestJSONLength: the length of a text as JSON is what encoding/json writes, for every character and their neighbours.
func TestJSONLength(t *testing.T) {
	t.Parallel()
	check := func(text string) {
		t.Helper()
		if raw, err := json.Marshal(text); err != nil || jsonLength(text) != len(raw)-2 {
			t.Errorf("%q has %d bytes as JSON (%v), not %d", text, len(raw)-2, err, jsonLength(text))
		}
	}
	for r := range rune(0x3000) {
		if r > 0 {
			check("a" + string(r) + "\u2028" + string(r) + "é")
		}
	}
	check("\u2028\u2029\u202a\u2027🦜<&>\"\\\b\f\n\r\t\x7f")
}
