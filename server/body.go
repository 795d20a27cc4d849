package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp/syntax"
	"strings"
	"unicode"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server/edge"
)

const maxUnpaidBody = 16 << 10 // bytes of a body that are read without a payment

// readBody reads the body. From then on the request is complete: it does not wait for its caller, so others cannot displace it. What is no
// operation, such as a document, stays displaceable while its response is written.
func (s *Server) readBody(c echo.Context) error {
	operation := operationFrom(c)
	if operation == nil {
		return nil
	}
	described := operation.route.Operation.RequestBody
	if described == nil { // the body of a GET is not read
		if operation.paid() && c.Request().ContentLength > int64(len("{}")) {
			return invalid(*detail("", "is not part of this operation%s", operation.knownParameters()))
		}
		if err := edge.RequestOf(c).Finish(); err != nil {
			return err
		}
		if hasPayment(c) && c.Request().ContentLength == 0 { // else the rest of the request keeps its deadline
			edge.RequestOf(c).StopReading()
		}
		return nil
	}
	body, err := s.bodyOf(c, operation)
	if err != nil {
		return err
	}
	if coding := strings.Join(c.Request().Header.Values("Content-Encoding"), ", "); len(body) > 0 && !isIdentity(coding) {
		return &problem{status: http.StatusUnsupportedMediaType, code: gen.ErrorCodeUnsupportedMediaType,
			message: fmt.Sprintf("the request body has the Content-Encoding %q; send it as it is, without Content-Encoding",
				payment.Shorten(coding, maxCoding))}
	}
	if len(body) == 0 && !described.Value.Required {
		body = emptyObject(c.Request())
	}
	c.Set(bodyKey, body)
	recordFrom(c).buckets.body = operation.bodyTokens(len(body))
	return nil
}

// isIdentity reports whether a Content-Encoding changes nothing. Its names ignore case.
func isIdentity(coding string) bool {
	for name := range strings.SplitSeq(coding, ",") {
		if name = strings.TrimSpace(name); name != "" && !strings.EqualFold(name, "identity") {
			return false
		}
	}
	return true
}

// bodyOf reads the body and makes it readable again. A body that its Content-Length shows to be too long is not read.
func (s *Server) bodyOf(c echo.Context, operation *operation) ([]byte, error) {
	r, most := c.Request(), operation.bounds.bytes
	if operation.paid() && !hasPayment(c) {
		most = min(most, maxUnpaidBody)
	}
	var body []byte
	err := edge.ErrTooLong
	if r.ContentLength <= int64(most) {
		body, err = edge.RequestOf(c).Read(r, most, hasPayment(c))
	}
	switch {
	case !errors.Is(err, edge.ErrTooLong):
		r.Body = io.NopCloser(bytes.NewReader(body))
		return body, problemOfBody(err)
	case most < operation.bounds.bytes && r.ContentLength <= int64(operation.bounds.bytes):
		return nil, s.challenge(c, operation)
	}
	return nil, &problem{status: http.StatusRequestEntityTooLarge, code: gen.ErrorCodeBodyTooLarge,
		message: fmt.Sprintf("the request body must have at most %d bytes", operation.bounds.bytes)}
}

// problemOfBody turns an error of reading the body into the response. The request was not executed, and its payment was not read.
func problemOfBody(err error) error {
	switch {
	case errors.Is(err, edge.ErrSlowBody):
		return &problem{status: http.StatusRequestTimeout, code: gen.ErrorCodeRequestTimeout, message: edge.ErrSlowBody.Error(), cause: err}
	case errors.Is(err, edge.ErrTruncated):
		return &problem{status: http.StatusBadRequest, code: gen.ErrorCodeInvalidRequest, cause: err, message: edge.ErrTruncated.Error(),
			details: []gen.ErrorDetail{{Message: "was truncated"}}}
	}
	return err
}

// emptyObject gives a request without body, where the contract allows that, the body {}. A payment then has the same fingerprint with both.
func emptyObject(r *http.Request) []byte {
	body := []byte("{}")
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Type", "application/json")
	return body
}

const (
	maxBody      = 256 << 10 // the contract's limit of a body, in bytes
	minBodyLimit = 16 << 10  // small bodies are cheap, and a text that is slightly too long gets a 400 that names its field
	maxDetails   = 20        // the contract's limit of details
	maxEntries   = 100       // the contract's limit of an array in a request
	maxErrorBody = 16 << 10  // bytes of an error's body, whatever was sent
	maxMessage   = 2 << 10   // bytes of an error's message
	maxCoding    = 64        // bytes of a content coding in an error's message
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
	members int // of an object: its schema has that many, and an error lists as many unknown ones
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

// add extends the bounds by a schema, and returns the maximum size of its values in bytes; maxBody if the schema has no limit.
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

// stringSize returns the maximum size of a string in JSON. A code point takes 6 bytes (\u00e9), or 12 outside the basic plane.
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
	} // the others without parts match no text
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
