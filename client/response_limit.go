package client

import (
	"errors"
	"io"
	"net/http"
)

// The limits of a response. A server that lies may send anything, and the process that reads it must not run out of memory.
const (
	// MaxResponse limits the body of a response with status 200, after decompression. The longest that the contract allows has
	// about 11 MiB: a page of 250 messages with 2 MiB of content and 100 reactions for each, every one an emoji of 32 characters.
	MaxResponse = 12 << 20
	// maxValues limits the objects, lists and members in a body: small values take a hundred times their length when they are
	// decoded. The longest page has about 155,000.
	maxValues = 200_000
	// maxErrorBody limits the body of any other response. It holds an error with all its details, some of which quote names of
	// the request.
	maxErrorBody = 256 << 10
	// maxHeader limits the headers of a response. Payment requirements and the state of a channel take less than 8 KiB.
	maxHeader = 64 << 10
)

// ErrTooLong means that a response is longer than any that the contract allows.
var ErrTooLong = errors.New("the response is longer than any that the contract allows")

// defaultTransport is the transport of Payers that name none.
var defaultTransport = NewTransport()

// NewTransport returns a transport with the defaults of net/http that limits the headers of responses.
func NewTransport() *http.Transport {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok { // else the program has replaced it
		transport = standard.Clone()
	}
	transport.MaxResponseHeaderBytes = maxHeader
	return transport
}

// Limited sends requests with base, and limits the bodies of their responses: reading more fails with [ErrTooLong]. If there is no
// connection to the server, the error is an [*UnreachableError].
func Limited(base http.RoundTripper) http.RoundTripper { return limited{base} }

type limited struct{ base http.RoundTripper }

func (l limited) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := roundTrip(l.base, request)
	if err != nil {
		return nil, err
	}
	room := int64(maxErrorBody)
	if response.StatusCode == http.StatusOK {
		room = MaxResponse
	}
	response.Body = &limitedBody{ReadCloser: response.Body, room: room, values: maxValues}
	return response, nil
}

// limitedBody is a body of which room bytes with some values of JSON may still be read.
type limitedBody struct {
	io.ReadCloser

	room, values    int64
	inText, escaped bool // where the last byte was
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.room+1 {
		p = p[:b.room+1] // one byte more tells a body that ends from one that goes on
	}
	n, err := b.ReadCloser.Read(p)
	b.room -= int64(n)
	b.count(p[:n])
	if b.room < 0 || b.values < 0 {
		return 0, ErrTooLong
	}
	return n, err
}

// count counts the values by the characters before them.
func (b *limitedBody) count(part []byte) {
	for _, c := range part {
		switch {
		case b.escaped:
			b.escaped = false
		case b.inText:
			b.escaped, b.inText = c == '\\', c != '"'
		case c == '"':
			b.inText = true
		case c == ',' || c == '[' || c == '{':
			b.values--
		}
	}
}
