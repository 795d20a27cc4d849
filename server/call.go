package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"

	"github.com/oapi-codegen/runtime"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
)

// call is one call of an operation, and the receiver of its handler.
type call struct {
	server *Server
	tx     *store.Store // the transaction, or for what is read only the database
	caller *store.Agent // nil for operations without security
	paid   payment.Paid // zero for free operations
}

var _ gen.StrictServerInterface = (*call)(nil)

// handler is a method of call. The generated strict server would call it with nothing but the request's context; this way it
// gets its transaction, and a payment of the ledger can be delivered without an HTTP request.
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

// decode makes the request that was stored in its canonical form: the JSON of its body, or its query.
func (h handler) decode(stored []byte) (request any, err error) {
	value := reflect.New(h.request).Elem()
	if body := value.FieldByName("Body"); body.IsValid() {
		body.Set(reflect.New(body.Type().Elem()))
		if err := json.Unmarshal(stored, body.Interface()); err != nil {
			return nil, fmt.Errorf("decode stored body: %w", err)
		}
	}
	if params := value.FieldByName("Params"); params.IsValid() {
		query, err := url.ParseQuery(string(stored))
		if err != nil {
			return nil, fmt.Errorf("decode stored query: %w", err)
		}
		for i := range params.NumField() {
			name, _, _ := strings.Cut(params.Type().Field(i).Tag.Get("form"), ",")
			if err := runtime.BindQueryParameter("form", true, false, name, query, params.Field(i).Addr().Interface()); err != nil {
				return nil, fmt.Errorf("decode stored query: %w", err)
			}
		}
	}
	return value.Interface(), nil
}
