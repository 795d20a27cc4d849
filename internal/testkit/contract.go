package testkit

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/x402"
)

// Contract is openapi.yaml without its servers, so that it holds at every address.
var Contract = func() *openapi3.T {
	document, err := parley.Document()
	if err != nil {
		panic(err)
	}
	document.Servers = nil
	return document
}()

// Operations are the operations of the contract by method and path, for example "POST /chat/private/send".
var Operations = func() map[string]*routers.Route {
	routes := map[string]*routers.Route{}
	for path, item := range Contract.Paths.Map() {
		for method, operation := range item.Operations() {
			routes[method+" "+path] = &routers.Route{Spec: Contract, Path: path, PathItem: item, Method: method, Operation: operation}
		}
	}
	return routes
}()

// Price is what an operation costs according to the contract, in atomic units; 0 if it is free. It asks no server.
func Price(operation string) uint64 {
	info, _ := Operations[operation].Operation.Extensions["x-payment-info"].(map[string]any)
	price, _ := info["price"].(map[string]any)
	amount, _ := price["amount"].(string)
	if amount == "" {
		return 0
	}
	atomic, err := x402.AtomicAmount(amount)
	if err != nil {
		panic(err)
	}
	return atomic
}

// Contractual is an HTTP transport that fails the test if a response breaks the contract.
type Contractual struct{ T testing.TB }

// RoundTrip sends a request and checks its response.
func (c *Contractual) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if response.Header.Get("X-Request-Id") == "" {
		c.T.Errorf("%s %s: the response has no X-Request-Id", request.Method, request.URL.Path)
	}
	if route := Operations[request.Method+" "+request.URL.Path]; route != nil {
		err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, Route: route},
			Status:                 response.StatusCode, Header: response.Header, Body: io.NopCloser(bytes.NewReader(body)),
			Options: &openapi3filter.Options{IncludeResponseStatus: true},
		})
		if err != nil {
			c.T.Errorf("%s %s: the response %d breaks the contract: %v", request.Method, request.URL.Path, response.StatusCode, err)
		}
	}
	return response, nil
}
