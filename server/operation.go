package server

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/oapi-codegen/runtime"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
)

// operation is an operation of the contract. The middleware finds it once, by method and route.
type operation struct {
	payment.Operation
	route      *routers.Route
	bounds     bodyBounds
	handler    handler
	challenges map[*payment.Error]*problem // the 402s for a request without payment, prepared
}

// readContract loads openapi.yaml and its operations, keyed by "METHOD /path".
func readContract() (*openapi3.T, map[string]*operation, error) {
	document, err := parley.Document()
	if err != nil {
		return nil, nil, err
	}
	// The server does not care under which address it is reached.
	document.Servers = nil
	operations, handlers := map[string]*operation{}, handlers()
	for path, item := range document.Paths.Map() {
		for method, described := range item.Operations() {
			operation := &operation{
				Operation: payment.Operation{ID: described.OperationID, Path: path, Description: described.Summary},
				bounds:    boundsOf(described),
				route:     &routers.Route{Spec: document, Path: path, PathItem: item, Method: method, Operation: described},
				handler:   handlers[described.OperationID],
			}
			if operation.Price, err = parley.Price(described); err != nil {
				return nil, nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			security := document.Security
			if described.Security != nil {
				security = *described.Security
			}
			operation.Account = len(security) > 0
			operation.ReadOnly = parley.ReadOnly(described)
			operation.Secret, _ = described.Extensions["x-secret-response"].(bool)
			operation.Paged = parley.ReturnsPage(described)
			operations[method+" "+path] = operation
		}
	}
	return document, operations, nil
}

var _ gen.StrictServerInterface = (*call)(nil)

// handler is a method of call, found by operation id. The generated strict server can pass a handler nothing but the
// context of the HTTP request. Calling the method directly passes the transaction too, and works without an HTTP
// request, for the recovery worker.
type handler struct {
	method  reflect.Value // func(*call, context.Context, Request) (Response, error)
	request reflect.Type
}

// handlers returns the handlers by operation id.
func handlers() map[string]handler {
	all := map[string]handler{}
	contract, calls := reflect.TypeFor[gen.StrictServerInterface](), reflect.TypeFor[*call]()
	for i := range contract.NumMethod() {
		method, _ := calls.MethodByName(contract.Method(i).Name)
		id := strings.ToLower(method.Name[:1]) + method.Name[1:]
		all[id] = handler{method.Func, method.Type.In(2)}
	}
	return all
}

// run runs the handler.
func (h handler) run(ctx context.Context, c *call, request any) (response any, err error) {
	results := h.method.Call([]reflect.Value{reflect.ValueOf(c), reflect.ValueOf(ctx), reflect.ValueOf(request)})
	err, _ = results[1].Interface().(error)
	return results[0].Interface(), err
}

// decode decodes a stored request: the JSON of its body, or its query.
func (h handler) decode(stored []byte) (request any, err error) {
	value := reflect.New(h.request).Elem()
	if body := value.FieldByName("Body"); body.IsValid() {
		body.Set(reflect.New(body.Type().Elem()))
		if err := json.Unmarshal(stored, body.Interface()); err != nil {
			return nil, fmt.Errorf("decode stored body: %w", err)
		}
	}
	if params := value.FieldByName("Params"); params.IsValid() {
		for i := range params.NumField() {
			name, _, _ := strings.Cut(params.Type().Field(i).Tag.Get("form"), ",")
			if err := runtime.BindRawQueryParameter("form", true, false, name, string(stored), params.Field(i).Addr().Interface()); err != nil {
				return nil, fmt.Errorf("decode stored query: %w", err)
			}
		}
	}
	return value.Interface(), nil
}
