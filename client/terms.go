package client

import (
	"net/http"

	"github.com/parley-chat/parley/x402"
)

// Terms are what a payer has agreed to before a call: prices, payee, network. All methods may be called concurrently.
type Terms interface {
	// Required returns what the server will ask for, so that the request can be paid at once, without asking first. It returns nil
	// if that is not known.
	Required(request *http.Request) *x402.PaymentRequired
	// Accept returns an error if an offer of the server is not what was agreed: another payee, a higher price. Offers that are
	// not accepted are not paid.
	Accept(request *http.Request, offer x402.PaymentRequirements) error
}

// agreed returns the requirements with the offers that the Payer accepts. If there are none, it returns why.
func (p *Payer) agreed(request *http.Request, required *x402.PaymentRequired) (*x402.PaymentRequired, error) {
	if p.Terms == nil {
		return required, nil
	}
	accepted := *required
	accepted.Accepts = nil
	var refused error
	for _, offer := range required.Accepts {
		if err := p.Terms.Accept(request, offer); err == nil {
			accepted.Accepts = append(accepted.Accepts, offer)
		} else if refused == nil {
			refused = err
		}
	}
	if accepted.Accepts == nil {
		return nil, refused
	}
	return &accepted, nil
}
