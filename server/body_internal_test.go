package server

import (
	"encoding/json"
	"regexp/syntax"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestBodyLimitHoldsEveryRequest: the longest request that each schema allows, spelled as wastefully as JSON can be, is
// within the limit of its operation; and where the fields are short, so is the limit.
func TestBodyLimitHoldsEveryRequest(t *testing.T) {
	t.Parallel()
	_, operations, err := readContract()
	testkit.NoError(t, err)
	for name, want := range map[string]int{ // the bytes of the longest values, without their names and white space
		"POST /chat/private/send":        16384*12 + 32*6,
		"POST /chat/group/edit":          64*12 + 1024*12 + 4*100*32*6 + 100*30*6 + 31*6,
		"POST /register/create_account":  32*6 + 32*12 + 1024*12,
		"POST /chat/group/create":        64*12 + 1024*12 + 100*32*6,
		"POST /register/request_account": 32 * 6,
	} {
		if got := operations[name].bounds.bytes; got < want || got > max(minBodyLimit, want+want/4+4<<10) {
			t.Errorf("%s takes at most %d bytes, want a little more than %d", name, got, want)
		}
	}
}

func TestLongestMatch(t *testing.T) {
	t.Parallel()
	type match struct {
		Runes   int
		Highest rune
	}
	for pattern, want := range map[string]match{
		"^agent_[0-7][0-9a-hjkmnp-tv-z]{25}$": {32, 'z'},
		"^[a-z0-9_]+$":                        {maxBody, 'z'},
		"^(ab|cde)?x{2,3}$":                   {6, 'x'},
		"^.$":                                 {1, unicode.MaxRune},
		"^😀*$":                                {maxBody, '😀'},
	} {
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		testkit.NoError(t, err)
		runes, highest := longestMatch(parsed)
		if diff := cmp.Diff(want, match{runes, highest}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", pattern, diff)
		}
	}
}

// TestErrorBodiesAreBounded: whatever an error quotes, its body is valid JSON of at most 16 KiB.
func TestErrorBodiesAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<\u2028é", 100_000) // six bytes of JSON for one or three
	var details []gen.ErrorDetail
	for range 1000 {
		details = append(details, gen.ErrorDetail{Field: "/" + long, Message: "is not a field of this request"})
	}
	for name, p := range map[string]*problem{
		"many details":    invalid(details...),
		"a long message":  {message: long},
		"a long detail":   {message: "x", details: []gen.ErrorDetail{{Field: "/a", Message: long}}},
		"nothing special": {message: "x"},
	} {
		body := p.body("req_1")
		raw := body.encode()
		if len(raw) > maxErrorBody || !json.Valid(raw) {
			t.Errorf("%s: %d bytes, want valid JSON of at most %d: %.200s", name, len(raw), maxErrorBody, raw)
		}
		if name == "many details" && (len(body.Details) == 0 || len(body.Details) > maxDetails) {
			t.Errorf("%s: %d are left, want 1 to %d", name, len(body.Details), maxDetails)
		}
	}
}
