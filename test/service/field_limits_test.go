package service

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/parley-chat/parley/internal/testkit"
)

// limit is a value of a field just within a limit of the contract, or just beyond it.
type limit struct {
	value any
	ok    bool
}

// limitsOf returns the values around the limits of a field's schema. Messages are left out: a call that does not pay gets its price before
// a long body is read.
func limitsOf(schema *openapi3.Schema) (limits []limit) {
	if most := schema.MaxLength; most != nil && *most < 10_000 {
		letter := "ö"
		if schema.Pattern != "" {
			letter = "a"
		}
		limits = append(limits, limit{strings.Repeat(letter, int(*most)), true}, limit{strings.Repeat(letter, int(*most)+1), false})
		if schema.MinLength > 0 {
			limits = append(limits, limit{"", false})
		}
	}
	if most := schema.MaxItems; most != nil {
		kind, _, _ := strings.Cut(strings.TrimPrefix(schema.Items.Value.Pattern, "^"), "_")
		items := make([]any, *most+1)
		for i := range items {
			items[i] = fmt.Sprintf("%s_%026d", kind, i)
		}
		limits = append(limits, limit{items[:*most], true}, limit{items, false})
	}
	for number, step := range map[*float64]float64{schema.Min: -1, schema.Max: 1} {
		if number != nil {
			limits = append(limits, limit{*number, true}, limit{*number + step, false})
		}
	}
	return limits
}

// TestFieldLimits sends each field of each request at the limits of the contract and beyond: what is within is priced, what is beyond is
// 400.
func TestFieldLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutLimits)
	for id, route := range testkit.Operations {
		if route.Operation.RequestBody == nil {
			continue
		}
		media := route.Operation.RequestBody.Value.Content["application/json"]
		example, _ := media.Example.(map[string]any)
		for name, property := range media.Schema.Value.Properties {
			if name == "emoji" { // has a grammar: TestEmoji of internal/emoji
				continue
			}
			for _, one := range limitsOf(property.Value) {
				body := maps.Clone(example)
				body[name] = one.value
				text, err := json.Marshal(body)
				testkit.NoError(t, err)
				want := map[bool]int{true: http.StatusPaymentRequired, false: http.StatusBadRequest}[one.ok]
				if reply := w.call(route.Method, route.Path, string(text)); reply.Status != want {
					t.Errorf("%s with %s %.60q: %v, want %d", id, name, one.value, reply, want)
				}
			}
		}
	}
}
