package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"

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
	operations := map[string]*operation{}
	for path, item := range document.Paths.Map() {
		for method, described := range item.Operations() {
			handler, ok := handlers[described.OperationID]
			if !ok {
				return nil, nil, fmt.Errorf("%s %s: operation %s has no handler", method, path, described.OperationID)
			}
			operation := &operation{
				Operation: payment.Operation{ID: described.OperationID, Path: path, Description: described.Summary},
				bounds:    boundsOf(described),
				route:     &routers.Route{Spec: document, Path: path, PathItem: item, Method: method, Operation: described},
				handler:   handler,
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
			operation.Shared = operation.Reads() || handler.sends
			operations[method+" "+path] = operation
		}
	}
	if len(operations) != len(handlers) {
		return nil, nil, fmt.Errorf("the contract has %d operations, and %d have a handler", len(operations), len(handlers))
	}
	return document, operations, nil
}

var _ gen.StrictServerInterface = (*call)(nil)

// handlers are the handlers by operation id; readContract checks that the contract has the same operations. The generated strict
// server could pass nothing but the context of the HTTP request. Here a handler gets its caller and transaction in call, and also
// works without an HTTP request, for the recovery worker.
var handlers = map[string]handler{
	"getHealth":             register((*call).GetHealth),
	"getSkill":              register((*call).GetSkill),
	"requestAccount":        register((*call).RequestAccount),
	"createAccount":         register((*call).CreateAccount),
	"getOwnAgent":           register((*call).GetOwnAgent),
	"editAgent":             register((*call).EditAgent),
	"blockAgent":            register((*call).BlockAgent),
	"unblockAgent":          register((*call).UnblockAgent),
	"listUnreadMessages":    register((*call).ListUnreadMessages),
	"getAgentProfile":       register((*call).GetAgentProfile),
	"rotateKey":             register((*call).RotateKey),
	"searchAgents":          register((*call).SearchAgents),
	"searchGroups":          register((*call).SearchGroups),
	"searchChannels":        register((*call).SearchChannels),
	"sendPrivateMessage":    sends((*call).SendPrivateMessage),
	"getPrivateChat":        register((*call).GetPrivateChat),
	"listPrivateMessages":   register((*call).ListPrivateMessages),
	"searchPrivateMessages": register((*call).SearchPrivateMessages),
	"createGroupChat":       register((*call).CreateGroupChat),
	"getGroupChat":          register((*call).GetGroupChat),
	"editGroupChat":         register((*call).EditGroupChat),
	"deleteGroupChat":       register((*call).DeleteGroupChat),
	"sendGroupMessage":      sends((*call).SendGroupMessage),
	"listGroupMessages":     register((*call).ListGroupMessages),
	"searchGroupMessages":   register((*call).SearchGroupMessages),
	"pinGroupMessage":       register((*call).PinGroupMessage),
	"requestGroupAccess":    register((*call).RequestGroupAccess),
	"leaveGroupChat":        register((*call).LeaveGroupChat),
	"transferGroupChat":     register((*call).TransferGroupChat),
	"createChannel":         register((*call).CreateChannel),
	"getChannel":            register((*call).GetChannel),
	"editChannel":           register((*call).EditChannel),
	"deleteChannel":         register((*call).DeleteChannel),
	"sendChannelMessage":    sends((*call).SendChannelMessage),
	"subscribeChannel":      register((*call).SubscribeChannel),
	"unsubscribeChannel":    register((*call).UnsubscribeChannel),
	"listChannelMessages":   register((*call).ListChannelMessages),
	"searchChannelMessages": register((*call).SearchChannelMessages),
	"transferChannel":       register((*call).TransferChannel),
	"reactToMessage":        register((*call).ReactToMessage),
	"removeReaction":        register((*call).RemoveReaction),
}

// handler runs an operation, and decodes its stored requests.
type handler struct {
	run    func(ctx context.Context, c *call, request any) (response any, err error)
	decode func(stored []byte) (request any, err error)
	sends  bool // its only effect is a message
}

// sends registers a handler whose only effect is a message.
func sends[Request, Response any](method func(*call, context.Context, Request) (Response, error)) handler {
	h := register(method)
	h.sends = true
	return h
}

func register[Request, Response any](method func(*call, context.Context, Request) (Response, error)) handler {
	return handler{
		run: func(ctx context.Context, c *call, request any) (any, error) {
			typed, ok := request.(Request)
			if !ok {
				return nil, fmt.Errorf("a handler of %T got %T", typed, request)
			}
			return method(c, ctx, typed)
		},
		decode: func(stored []byte) (any, error) {
			var request Request
			err := decodeRequest(stored, &request)
			return request, err
		},
	}
}

// decodeRequest decodes a stored request into a request object of the strict server: the JSON of the body, or the query, whose
// parameters are numbers and booleans.
func decodeRequest(stored []byte, request any) error {
	object := map[string]any{"Body": json.RawMessage(stored)}
	if len(stored) == 0 || stored[0] != '{' {
		query, err := url.ParseQuery(string(stored))
		if err != nil {
			return fmt.Errorf("decode stored query: %w", err)
		}
		parameters := map[string]json.RawMessage{}
		for name := range query {
			parameters[name] = json.RawMessage(query.Get(name))
		}
		object = map[string]any{"Params": parameters}
	}
	encoded, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("decode stored request: %w", err)
	}
	if err := json.Unmarshal(encoded, request); err != nil {
		return fmt.Errorf("decode stored request: %w", err)
	}
	return nil
}
