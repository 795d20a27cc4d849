package edge

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

const (
	firstRead = 4 << 10         // bytes of the first buffer; it doubles with what arrives
	bodyGrace = 3 * time.Second // for the first bytes: a lost packet is sent again after one second, and then after two
	bodyRate  = 8 << 10         // bytes a second at which the rest must arrive at least
)

// The errors of a body that cannot be read.
var (
	ErrTooLong   = errors.New("the body is too long")
	ErrTruncated = errors.New("the request body was truncated; send the same request again")
	ErrSlowBody  = fmt.Errorf("the request body arrived too slowly: after %.0f seconds at least %d bytes a second must arrive, and all of "+
		"it within %.0f seconds; nothing was charged; send the same request, with the same payment if it had one, over a faster connection",
		bodyGrace.Seconds(), bodyRate, requestTimeout.Seconds())
)

// StopReading removes the read deadline of a request that is complete, so that it does not end the wait for a settlement.
func (r *Request) StopReading() { r.setReadDeadline(time.Time{}) }

func (r *Request) setReadDeadline(at time.Time) { _ = r.response.SetReadDeadline(at) }

// Read reads a body of at most so many bytes. The deadline moves with what arrives, so a caller that sends slowly ends before
// requestTimeout. It ends with the body of a request that pays, whose settlement may take longer. The error is ErrTooLong, ErrSlowBody,
// ErrTruncated, ErrDisplaced or ErrCrowded.
func (r *Request) Read(from *http.Request, most int, pays bool) ([]byte, error) {
	bound := most + 1 // to notice a longer body
	if from.ContentLength >= 0 {
		bound = int(from.ContentLength) + 1 // to notice the end
	}
	began, counted := time.Now(), 0
	body := make([]byte, 0, min(firstRead, bound))
	for {
		arrived := time.Duration(len(body)) * time.Second / bodyRate
		r.setReadDeadline(began.Add(min(bodyGrace+arrived, requestTimeout)))
		if err := r.hold(cap(body) - counted); err != nil { // after the deadline was set: whoever displaces this request sets another
			return nil, err
		}
		counted = cap(body)
		n, err := from.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > most:
			r.setReadDeadline(began.Add(requestTimeout)) // net/http reads the rest
			return nil, ErrTooLong
		case errors.Is(err, io.EOF):
			deadline := began.Add(requestTimeout)
			if pays { // the read deadline must not end the wait for the settlement
				deadline = time.Time{}
			}
			r.setReadDeadline(deadline)
			return body, r.Finish()
		case err != nil:
			if displaced := r.hold(0); displaced != nil {
				return nil, displaced
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return nil, fmt.Errorf("%w: %w", ErrSlowBody, err)
			}
			return nil, fmt.Errorf("%w: %w", ErrTruncated, err)
		case len(body) == cap(body):
			body = append(make([]byte, 0, min(2*cap(body), bound)), body...)
		}
	}
}
