package server

import (
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/parley-chat/parley/gen"
)

const (
	maxHeaderBytes = 64 << 10 // of all headers of a request; net/http returns 431 above it
	maxHeaderLines = 200      // of them; a short line takes a hundred times its bytes in memory
	freeBytes      = 4 << 10  // of headers that are not complete do not count: net/http has a buffer of this size for each connection anyway
)

// headerCount counts the headers of a request as they arrive.
type headerCount struct {
	complete         bool
	bytes, lines, at int // at: the bytes of the last line
}

// count counts further lines of the request, up to the empty line that ends its headers. It returns how many bytes belong to them.
func (h *headerCount) count(read []byte) (bytes int) {
	for i, b := range read {
		switch {
		case h.complete:
			return i
		case b == '\n':
			h.complete = h.at == 0
			h.lines++
			h.at = 0
		case b != '\r':
			h.at++
		}
	}
	return len(read)
}

// errTooManyHeaders ends the connection after the response was written. net/http treats it like a disconnect.
var errTooManyHeaders = fmt.Errorf("too many headers: %w", io.EOF)

// Read counts the headers as they arrive. net/http bounds their bytes, but not their number and not those of all
// connections together. Encrypted bytes count until the headers are complete, whatever they contain.
func (c *connection) Read(to []byte) (int, error) {
	n, err := c.Conn.Read(to)
	if !c.all.encrypted {
		return c.readHeaders(c.Conn, to[:n], err)
	}
	c.countBytes(n)
	return n, err
}

// countBytes counts bytes unless the headers are complete.
func (c *connection) countBytes(n int) {
	c.counting.Lock()
	if c.headers.complete {
		n = 0
	}
	c.headers.bytes += n
	bytes := c.headers.bytes
	c.counting.Unlock()
	if n > 0 && bytes > freeBytes {
		c.all.addHeaders(c, bytes-freeBytes)
	}
}

// readHeaders counts what was read of a request in plain text, and returns the result of the read. If there are too many headers it
// writes a response to the caller.
func (c *connection) readHeaders(caller net.Conn, read []byte, err error) (int, error) {
	c.counting.Lock()
	bytes := c.headers.count(read)
	complete, lines := c.headers.complete, c.headers.lines
	c.counting.Unlock()
	switch {
	case complete:
	case lines > maxHeaderLines:
		c.all.refused.Inc()
		writeRefusal(caller, http.StatusRequestHeaderFieldsTooLarge, gen.ErrorCodeInvalidRequest, fmt.Sprintf("a request can have at most %d headers", maxHeaderLines))
		_ = closeWrite(caller)
		return 0, errTooManyHeaders
	case !c.all.encrypted:
		c.countBytes(bytes)
	}
	return len(read), err
}

// addHeaders records how many bytes of headers the connection has sent.
func (l *connections) addHeaders(c *connection, bytes int) {
	l.mu.Lock()
	defer l.unlock()
	if !c.closed {
		l.hold(&c.bytes, c.address, bytes-c.bytes.size)
	}
}

// dropHeaders undoes addHeaders. The caller holds the lock.
func (c *connection) dropHeaders() { c.all.held -= c.all.memory.drop(&c.bytes) }
