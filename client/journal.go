package client

import (
	"context"
	"net/http"
)

// Journal keeps payments from before they are sent until their outcome is known, so that a program that crashes can send the same
// payment again ([Payer.Resume]). All methods may be called concurrently.
type Journal interface {
	// Signed stores a payment before it is sent. A later payment of the same call replaces it. If Signed returns an error, the
	// payment is not sent.
	Signed(ctx context.Context, payment SignedPayment) error
	// Closed stores the known outcome of a call. If that fails, the call stays open in the journal: sending the payment again
	// returns the same response and charges nothing.
	Closed(ctx context.Context, id string, outcome Outcome)
}

// SignedPayment is a request with its payment. It can be sent by anyone who has it, so it must be kept secret.
type SignedPayment struct {
	Reservation
	Method, URL string
	// Header is that of the request without PAYMENT-SIGNATURE. It may contain an API key.
	Header http.Header
	Body   []byte
	// Payment is the value of PAYMENT-SIGNATURE.
	Payment string
}

// Outcome is the known outcome of a call.
type Outcome struct {
	// Status is 0 if the last payment of the call was not sent.
	Status int
	Header http.Header
	Body   []byte
	// Charged is what the server charged, in atomic units, as far as it says.
	Charged uint64
}
