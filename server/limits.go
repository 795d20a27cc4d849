package server

import (
	"math"
	"net/http"
	"net/netip"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"github.com/getkin/kin-openapi/openapi3"
)

const (
	maxBody      = 256 << 10 // the contract's limit of a body, in bytes
	minBodyLimit = 16 << 10  // small bodies are cheap, and a text that is slightly too long gets a 400 that names its field
	maxDetails   = 20        // the contract's limit of details
	maxEntries   = 100       // the contract's limit of an array in a request
	maxErrorBody = 16 << 10  // bytes of an error's body, whatever was sent
	maxMessage   = 2 << 10   // bytes of an error's message
	maxDepth     = 16        // levels of JSON in a request; the contract has fewer

	// Bytes for white space and punctuation, per value and per body. Indented JSON needs less.
	spacePerValue = 32
	spacePerBody  = 1 << 10
)

// bodyBounds bound the request of an operation. They are checked before the schema, because the validator creates an
// error for each invalid element.
type bodyBounds struct {
	bytes   int // of the body
	entries int // of an array
	members int // of an object: those of its schema, and as many unknown ones as an error lists
}

// boundsOf computes the bounds from the schema of the request body.
func boundsOf(described *openapi3.Operation) bodyBounds {
	bounds := bodyBounds{members: maxDetails, entries: maxEntries}
	size := 0
	if described.RequestBody != nil {
		if media := described.RequestBody.Value.Content["application/json"]; media != nil {
			size = bounds.add(media.Schema.Value)
		}
	}
	size = (size + spacePerBody + 1023) &^ 1023 // full KiB
	bounds.bytes = min(max(size, minBodyLimit), maxBody)
	return bounds
}

// add extends the bounds by a schema, and returns the maximum size of its values in bytes; maxBody if the schema has no
// limit.
func (b *bodyBounds) add(schema *openapi3.Schema) int {
	size := spacePerValue
	switch {
	case schema.Type.Is(openapi3.TypeObject):
		b.members = max(b.members, len(schema.Properties)+maxDetails)
		for name, property := range schema.Properties {
			size += len(name) + b.add(property.Value)
		}
	case schema.Type.Is(openapi3.TypeArray):
		entries := maxBody
		if schema.MaxItems != nil && *schema.MaxItems < maxBody {
			entries = int(*schema.MaxItems)
		}
		b.entries = max(b.entries, entries)
		size += entries * b.add(schema.Items.Value)
	case schema.Type.Is(openapi3.TypeString):
		size += stringSize(schema)
	} // numbers and booleans fit into spacePerValue
	return min(size, maxBody)
}

// stringSize returns the maximum size of a string in JSON. A code point takes 6 bytes (\u00e9), or 12 outside the basic
// plane.
func stringSize(schema *openapi3.Schema) int {
	const escaped, escapedPair = 6, 12
	runes, width := maxBody, escapedPair
	if schema.MaxLength != nil && *schema.MaxLength < maxBody {
		runes = int(*schema.MaxLength)
	}
	anchored := strings.HasPrefix(schema.Pattern, "^") && strings.HasSuffix(schema.Pattern, "$") // others match a part of the text
	if pattern, err := syntax.Parse(schema.Pattern, syntax.Perl); anchored && err == nil {
		longest, highest := longestMatch(pattern)
		runes = min(runes, longest)
		if highest <= 0xFFFF {
			width = escaped
		}
	}
	return min(runes*width, maxBody)
}

// longestMatch returns the length of the longest match of an anchored pattern in code points (maxBody if there is no
// limit), and the highest code point.
func longestMatch(pattern *syntax.Regexp) (runes int, highest rune) {
	switch pattern.Op {
	case syntax.OpLiteral:
		for _, r := range pattern.Rune {
			highest = max(highest, r)
		}
		return len(pattern.Rune), highest
	case syntax.OpCharClass:
		return 1, pattern.Rune[len(pattern.Rune)-1]
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1, unicode.MaxRune
	case syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpEmptyMatch, syntax.OpNoMatch,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return 0, 0
	}
	for _, sub := range pattern.Sub {
		length, top := longestMatch(sub)
		highest = max(highest, top)
		if pattern.Op == syntax.OpAlternate {
			runes = max(runes, length)
		} else {
			runes += length
		}
	}
	switch {
	case pattern.Op == syntax.OpStar, pattern.Op == syntax.OpPlus, pattern.Op == syntax.OpRepeat && pattern.Max < 0:
		return maxBody, highest
	case pattern.Op == syntax.OpRepeat:
		runes *= pattern.Max
	}
	return min(runes, maxBody), highest
}

// clientAddress returns the network of the client: of the connection, or, behind trusted proxies, of the last entry in
// X-Forwarded-For that is not a trusted proxy. Earlier entries are not reliable, because the client can write them.
func (s *Server) clientAddress(r *http.Request) netip.Prefix {
	address := parseAddress(r.RemoteAddr)
	if !s.config.Limits.trusts(address) {
		return network(address)
	}
	for _, line := range slices.Backward(r.Header.Values("X-Forwarded-For")) {
		for line != "" {
			comma := strings.LastIndexByte(line, ',')
			hop := parseAddress(strings.TrimSpace(line[comma+1:]))
			if !hop.IsValid() {
				return network(address) // the proxy's own, rather than what nobody vouches for
			}
			if address = hop; !s.config.Limits.trusts(address) {
				return network(address)
			}
			line = line[:max(comma, 0)]
		}
	}
	return network(address)
}

// perAddress is how many connections and requests an address may have.
func (l Limits) perAddress(address netip.Addr) int {
	if l.trusts(address) {
		return math.MaxInt
	}
	return l.ConnectionsPerAddress
}

func (l Limits) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(l.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// parseAddress parses an address with or without port. It returns the zero address if the text is invalid.
func parseAddress(text string) netip.Addr {
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr().Unmap().WithZone("")
	}
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap().WithZone("")
}

// network returns the prefix that counts as one client: an IPv4 address, or an IPv6 /64, which one customer usually has
// as a whole. Connections without an address share one prefix.
func network(address netip.Addr) netip.Prefix {
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits)
	return prefix
}
