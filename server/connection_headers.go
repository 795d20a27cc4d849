package server

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/parley-chat/parley/gen"
)

const (
	maxHeaderBytes = 32 << 10 // of all headers of a request; net/http returns 431 above it
	maxHeaderLines = 200      // of them; a short line takes a hundred times its bytes in memory
	freeBytes      = 4 << 10  // of headers that are not complete do not count: net/http has a buffer of this size for each connection anyway
	bufferedLines  = freeBytes / len("a:\n")
)

// headerCount counts the headers of a request as they arrive.
type headerCount struct {
	complete         bool
	bytes, lines, at int // at: the bytes of the last line
	after            int // lines that were read behind the headers: the body, or the next request
	buffered         int // lines that were read with the request before, and may be headers of this one
}

// next begins to count the next request of the connection.
func (h headerCount) next() headerCount { return headerCount{buffered: h.after} }

// held is how many bytes of memory unfinished headers take.
func (h headerCount) held() int {
	if h.complete {
		return 0
	}
	return max(0, h.bytes-freeBytes) + h.buffered*perHeader
}

// count counts further lines of the request, up to the empty line that ends its headers. It returns how many bytes belong to them.
func (h *headerCount) count(read []byte) int {
	for i, b := range read {
		switch {
		case h.complete:
			h.after = min(h.after+bytes.Count(read[i:], []byte("\n")), bufferedLines)
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
	held := c.headers.held()
	c.counting.Unlock()
	if n > 0 && held > 0 { // else nothing changed
		c.all.holdHeaders(c, held)
	}
}

// readHeaders counts what was read of a request in plain text, and returns the result of the read. If there are too many headers it
// writes a response to the caller.
func (c *connection) readHeaders(caller net.Conn, read []byte, err error) (int, error) {
	c.counting.Lock()
	n := c.headers.count(read)
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
		c.countBytes(n)
	}
	return len(read), err
}

// holdHeaders records how many bytes of memory the connection's unfinished headers take.
func (l *connections) holdHeaders(c *connection, held int) {
	l.mu.Lock()
	defer l.unlock()
	switch {
	case held == 0:
		c.dropHeaders()
	case !c.closed:
		l.hold(&c.bytes, c.address, held-c.bytes.size)
	}
}

// dropHeaders undoes holdHeaders. The caller holds the lock.
func (c *connection) dropHeaders() { c.all.held -= c.all.memory.drop(&c.bytes) }
