package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
)

// operation is an operation of the contract. The middleware finds it once, by method and route.
type operation struct {
	payment.Operation
	route      *routers.Route
	bounds     bodyBounds
	handler    handler
	challenges map[*payment.Error]*problem // the 402s for a request without payment, prepared
}

// contract is openapi.yaml, read once for all servers of the process.
var contract = sync.OnceValues(func() (*openapi3.T, error) {
	document, err := parley.Document()
	if err == nil {
		document.Servers = nil // the server does not care under which address it is reached
	}
	return document, err
})

// readContract returns openapi.yaml and its operations, keyed by "METHOD /path".
func readContract() (*openapi3.T, map[string]*operation, error) {
	document, err := contract()
	if err != nil {
		return nil, nil, err
	}
	operations := map[string]*operation{}
	for path, item := range document.Paths.Map() {
		for method, described := range item.Operations() {
			handler, ok := handlers[described.OperationID]
			if !ok {
				return nil, nil, fmt.Errorf("%s %s: operation %s has no handler", method, path, described.OperationID)
			}
			price, err := parley.Price(described)
			if err != nil {
				return nil, nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			secret, _ := described.Extensions["x-secret-response"].(bool)
			operation := &operation{
				Operation: payment.Operation{
					ID: described.OperationID, Path: path, Description: described.Summary, Price: price,
					Account:  len(*cmp.Or(described.Security, &document.Security)) > 0,
					ReadOnly: parley.ReadOnly(described), Secret: secret, Paged: parley.ReturnsPage(described),
					Search: parley.Searches(described), Transacted: handler.transacted != nil,
				},
				bounds:  boundsOf(described),
				route:   &routers.Route{Spec: document, Path: path, PathItem: item, Method: method, Operation: described},
				handler: handler,
			}
			if operation.Reads() && handler.batched == nil {
				return nil, nil, fmt.Errorf("%s %s: operation %s reads, so its handler must be batched", method, path, described.OperationID)
			}
			operations[method+" "+path] = operation
		}
	}
	if len(operations) != len(handlers) {
		return nil, nil, fmt.Errorf("the contract has %d operations, and %d have a handler", len(operations), len(handlers))
	}
	return document, operations, nil
}

// contractHandlers makes the compiler check that every operation of the contract has a handler with its types. The generated strict server
// parses and routes requests, but does not call it: it could pass nothing but the context of the HTTP request. The table handlers
// dispatches in its place, because a handler needs its caller and a transaction, and also runs without a request, when a payment is
// recovered.
var contractHandlers gen.StrictServerInterface = &change{}

// handlers are the handlers by operation id; readContract checks that the contract has the same operations.
var handlers = map[string]handler{
	"getHealth":             batched((*call).GetHealth),
	"getSkill":              batched((*call).GetSkill),
	"requestAccount":        transacted((*change).RequestAccount),
	"createAccount":         transacted((*change).CreateAccount),
	"getOwnAgent":           batched((*call).GetOwnAgent),
	"editAgent":             transacted((*change).EditAgent),
	"blockAgent":            transacted((*change).BlockAgent),
	"unblockAgent":          transacted((*change).UnblockAgent),
	"listUnreadMessages":    batched((*call).ListUnreadMessages),
	"getAgentProfile":       batched((*call).GetAgentProfile),
	"rotateKey":             transacted((*change).RotateKey),
	"searchAgents":          batched((*call).SearchAgents),
	"searchGroups":          batched((*call).SearchGroups),
	"searchChannels":        batched((*call).SearchChannels),
	"sendPrivateMessage":    batched((*call).SendPrivateMessage),
	"getPrivateChat":        batched((*call).GetPrivateChat),
	"listPrivateMessages":   batched((*call).ListPrivateMessages),
	"searchPrivateMessages": batched((*call).SearchPrivateMessages),
	"createGroupChat":       transacted((*change).CreateGroupChat),
	"getGroupChat":          batched((*call).GetGroupChat),
	"editGroupChat":         transacted((*change).EditGroupChat),
	"deleteGroupChat":       transacted((*change).DeleteGroupChat),
	"sendGroupMessage":      batched((*call).SendGroupMessage),
	"listGroupMessages":     batched((*call).ListGroupMessages),
	"searchGroupMessages":   batched((*call).SearchGroupMessages),
	"pinGroupMessage":       transacted((*change).PinGroupMessage),
	"requestGroupAccess":    transacted((*change).RequestGroupAccess),
	"leaveGroupChat":        transacted((*change).LeaveGroupChat),
	"transferGroupChat":     transacted((*change).TransferGroupChat),
	"createChannel":         transacted((*change).CreateChannel),
	"getChannel":            batched((*call).GetChannel),
	"editChannel":           transacted((*change).EditChannel),
	"deleteChannel":         transacted((*change).DeleteChannel),
	"sendChannelMessage":    batched((*call).SendChannelMessage),
	"subscribeChannel":      transacted((*change).SubscribeChannel),
	"unsubscribeChannel":    transacted((*change).UnsubscribeChannel),
	"listChannelMessages":   batched((*call).ListChannelMessages),
	"searchChannelMessages": batched((*call).SearchChannelMessages),
	"transferChannel":       transacted((*change).TransferChannel),
	"reactToMessage":        transacted((*change).ReactToMessage),
	"removeReaction":        transacted((*change).RemoveReaction),
}

// lockedBy returns the id of the conversation that the transaction of a request locks. A private chat is named by the recipient.
func lockedBy(request []byte) string {
	var names struct {
		ChatID           string `json:"chat_id"`
		ChannelID        string `json:"channel_id"`
		RecipientAgentID string `json:"recipient_agent_id"`
	}
	_ = json.Unmarshal(request, &names) // it was validated, or is a query
	return names.ChatID + names.ChannelID + names.RecipientAgentID
}

// handler runs an operation, with one of its two functions, and decodes its stored requests.
type handler struct {
	batched    func(ctx context.Context, c *call, request any) (response any, err error)
	transacted func(ctx context.Context, c *change, request any) (response any, err error)
	decode     func(stored []byte) (request any, err error)
}

// batched registers a handler that reads, or whose only effect is a message or messages that are marked as read.
func batched[Request, Response any](method func(*call, context.Context, Request) (Response, error)) handler {
	return handler{batched: untyped(method), decode: decodeStored[Request]}
}

// transacted registers a handler that needs a transaction of its own.
func transacted[Request, Response any](method func(*change, context.Context, Request) (Response, error)) handler {
	return handler{transacted: untyped(method), decode: decodeStored[Request]}
}

func untyped[Receiver, Request, Response any](
	method func(Receiver, context.Context, Request) (Response, error),
) func(context.Context, Receiver, any) (any, error) {
	return func(ctx context.Context, c Receiver, request any) (any, error) {
		typed, ok := request.(Request)
		if !ok {
			return nil, fmt.Errorf("a handler of %T got %T", typed, request)
		}
		return method(c, ctx, typed)
	}
}

// handled is called when a handler has run, with its error.
type handled func(started time.Time, err error)

// work is what a call of the operation does in the database.
func (o *operation) work(of call, request any, done handled) store.Work {
	if o.handler.transacted != nil {
		return store.Work{Transacted: func(ctx context.Context, tx *store.Tx) (store.Response, error) {
			c := &change{call: of, tx: tx}
			if o.Secret {
				c.derived = newDerivation(of.server.config.Secrets[0], of.paid.ID)
			}
			c.read, c.do = &tx.Reader, tx
			started := time.Now()
			response, err := o.handler.transacted(ctx, c, request)
			body, err := done.encode(started, response, err)
			made := store.Response{Body: body}
			if o.Secret && err == nil {
				made.Record = c.derived.withoutSecrets(body)
			}
			return made, err
		}}
	}
	return store.Work{Batched: func(ctx context.Context, read *store.Reader, do store.Actions) (store.Response, error) {
		c := of
		c.read, c.do = read, do
		started := time.Now()
		response, err := o.handler.batched(ctx, &c, request)
		body, err := done.encode(started, response, err)
		return store.Response{Body: body, Record: c.record}, err
	}}
}

// encode encodes the response of a handler that has run.
func (done handled) encode(started time.Time, response any, err error) (raw []byte, _ error) {
	if err == nil {
		raw, err = json.Marshal(response)
	}
	if done != nil {
		done(started, err)
	}
	return raw, err
}

// decodeStored decodes a stored request into a request object of the strict server: the JSON of the body, or the query, whose
// parameters are numbers, booleans, and texts that are no JSON.
func decodeStored[Request any](stored []byte) (any, error) {
	var request Request
	object := map[string]any{"Body": json.RawMessage(stored)}
	if len(stored) == 0 || stored[0] != '{' {
		query, err := url.ParseQuery(string(stored))
		if err != nil {
			return nil, fmt.Errorf("decode stored query: %w", err)
		}
		parameters := map[string]json.RawMessage{}
		for name := range query {
			value := []byte(query.Get(name))
			if !json.Valid(value) {
				value, _ = json.Marshal(query.Get(name)) // cannot fail
			}
			parameters[name] = value
		}
		object = map[string]any{"Params": parameters}
	}
	encoded, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(encoded, &request)
	}
	if err != nil {
		return nil, fmt.Errorf("decode stored request: %w", err)
	}
	return request, nil
}
