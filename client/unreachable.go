package client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"
	"time"
)

// UnreachableError means that there was no connection to the server, so nothing was sent.
type UnreachableError struct {
	// Server is scheme and host of the URL.
	Server string
	cause  error
}

func (e *UnreachableError) Error() string { return e.reason() + "; nothing was sent" }

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.cause }

func (e *UnreachableError) reason() string {
	var why any = e.cause
	if errno, ok := errors.AsType[syscall.Errno](e.cause); ok {
		why = errno // without the addresses
	} else if lookup, ok := errors.AsType[*net.DNSError](e.cause); ok {
		why = lookup.Err
	}
	return fmt.Sprintf("could not reach %s (%v)", e.Server, why)
}

// unreachablePatience limits how long a payment is tried that was not sent yet: a server that starts again is back by then.
const unreachablePatience = 5 * time.Second

// wasNotSent reports whether a request was not sent for certain.
func wasNotSent(err error) bool {
	_, unreachable := errors.AsType[*UnreachableError](err)
	return unreachable
}

// roundTrip sends a request. A failed dial says that nothing was sent only if the transport had no connection before: it repeats requests
// whose connection was lost.
func roundTrip(base http.RoundTripper, request *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	response, err := base.RoundTrip(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
	if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "dial" && !connected.Load() && !wasNotSent(err) {
		return nil, &UnreachableError{request.URL.Scheme + "://" + request.URL.Host, err}
	}
	return response, err
}
