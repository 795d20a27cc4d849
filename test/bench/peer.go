//go:build linux

package main

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/x402"
)

// The peer is what a server with the official x402 middleware does for a call: it verifies the payment at the facilitator, runs the
// handler into a buffer, settles, and sends the response. It stores nothing, so a lost response is lost, and a payment that is sent twice
// at the same time runs the handler twice.

// servePeer serves a handler that always responds the same, at the price of a message, until ctx ends.
func servePeer(ctx context.Context, facilitator, address string) error {
	network, _ := x402.LookupNetwork(devnet.NetworkID)
	p := &peer{
		facilitator: x402.Facilitator{BaseURL: facilitator, HTTPClient: http.DefaultClient},
		offers:      []x402.PaymentRequirements{network.Requirements(5000, devnet.Payee, 300)},
	}
	var err error
	if p.required, err = x402.EncodePaymentRequired(&x402.PaymentRequired{X402Version: x402.Version, Accepts: p.offers,
		Resource: x402.ResourceInfo{URL: "http://" + address + "/"}}); err != nil {
		return err
	}
	routes := echo.New()
	routes.Any("/*", func(c echo.Context) error {
		return c.JSON(http.StatusOK, map[string]any{"success": true, "message_id": "message_01h455vb4pex5vsknk084sn02q"})
	}, p.requirePayment)
	return serveHTTP(ctx, address, routes)
}

// peer is a minimal x402 middleware for the scheme exact.
type peer struct {
	facilitator x402.Facilitator
	offers      []x402.PaymentRequirements
	required    string // the header of its 402
}

func (p *peer) requirePayment(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, header := c.Request().Context(), c.Request().Header.Get(x402.HeaderPaymentSignature)
		if header == "" {
			return p.refuse(c, "payment required")
		}
		payment, err := x402.DecodePaymentPayload(header)
		if err != nil {
			return p.refuse(c, err.Error())
		}
		offer, ok := x402.Match(p.offers, payment)
		if !ok {
			return p.refuse(c, "no matching payment requirements")
		}
		verified, err := p.facilitator.Verify(ctx, payment, offer)
		if err != nil {
			return err
		}
		if !verified.IsValid {
			return p.refuse(c, verified.InvalidReason)
		}
		writer, response := c.Response().Writer, httptest.NewRecorder()
		c.Response().Writer = response
		err = next(c)
		c.Response().Writer = writer
		if err != nil {
			return err
		}
		if response.Code >= http.StatusBadRequest {
			return send(writer, response)
		}
		settled, err := p.facilitator.Settle(context.WithoutCancel(ctx), payment, offer)
		if err != nil {
			return err
		}
		if header, err = x402.EncodeSettleResponse(settled); err != nil {
			return err
		}
		writer.Header().Set(x402.HeaderPaymentResponse, header)
		if !settled.Success {
			response.Code = http.StatusPaymentRequired
			response.Body.Reset()
		}
		return send(writer, response)
	}
}

func (p *peer) refuse(c echo.Context, reason string) error {
	c.Response().Header().Set(x402.HeaderPaymentRequired, p.required)
	return c.JSON(http.StatusPaymentRequired, map[string]string{"error": reason})
}

// send sends a response that was held back.
func send(w http.ResponseWriter, response *httptest.ResponseRecorder) error {
	maps.Copy(w.Header(), response.Header())
	w.WriteHeader(response.Code)
	_, err := w.Write(response.Body.Bytes())
	return err
}
