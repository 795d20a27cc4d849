package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// object is a mapping of the contract. The helpers panic where the contract is not as an edit supposes.
type object = map[string]any

func at(value object, keys ...string) object {
	for _, key := range keys {
		value = value[key].(object)
	}
	return value
}

// set changes one thing; nil removes it.
func set(value any, keys ...string) func(object) {
	return func(document object) {
		parent, last := at(document, keys[:len(keys)-1]...), keys[len(keys)-1]
		if value == nil {
			if _, ok := parent[last]; !ok {
				panic("the contract has no " + strings.Join(keys, " "))
			}
			delete(parent, last)
			return
		}
		parent[last] = value
	}
}

func operation(path, method string, keys ...string) []string {
	return append([]string{"paths", path, method}, keys...)
}

// price is the path of sendPrivateMessage's price.
var price = operation("/chat/private/send", "post", "x-payment-info", "price", "amount")

func schema(name string, keys ...string) []string {
	return append([]string{"components", "schemas", name}, keys...)
}

func released(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../../../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// edited is the contract with an edit.
func edited(t *testing.T, edit func(object)) []byte {
	t.Helper()
	var document object
	if err := yaml.Unmarshal(released(t), &document); err != nil {
		t.Fatal(err)
	}
	edit(document)
	text, err := yaml.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var newText = object{"type": "string", "description": "New.", "maxLength": 10}

// breakingEdits are edits of the contract that break clients.
var breakingEdits = map[string]struct {
	edit       func(object)
	operations string // the operations that it breaks
	kinds      string
}{
	"an operation removed": {
		set(nil, operation("/message/react/remove", "post")...), "removeReaction", "api-removed-without-deprecation",
	},
	"another operationId": {
		set("sendDirectMessage", operation("/chat/private/send", "post", "operationId")...),
		"sendPrivateMessage", "api-operation-id-removed",
	},
	"a required response field removed": {
		func(document object) {
			set(nil, schema("SentPrivateMessage", "properties", "chat_id")...)(document)
			set([]any{"success", "message_id", "message"}, schema("SentPrivateMessage", "required")...)(document)
		}, "sendPrivateMessage", "response-required-property-removed",
	},
	"an optional response field removed": {
		set(nil, schema("PrivateChat", "properties", "last_message_at")...),
		"getPrivateChat", "response-optional-property-removed",
	},
	"a request field removed": {
		set(nil, schema("LeaveGroupChatRequest", "properties", "transfer_message")...),
		"leaveGroupChat", "request-property-removed",
	},
	"a new required request field": {
		func(document object) {
			set(newText, schema("PinGroupMessageRequest", "properties", "reason")...)(document)
			set([]any{"chat_id", "message_id", "reason"}, schema("PinGroupMessageRequest", "required")...)(document)
		}, "pinGroupMessage", "new-required-request-property",
	},
	"another pattern": {
		set(object{"type": "string", "maxLength": 32, "minLength": 1, "pattern": "^[a-z]+$"},
			schema("RequestAccountRequest", "properties", "requested_username")...),
		"requestAccount", "request-property-pattern-changed",
	},
	"another default": {
		set(false, schema("CreateChannelRequest", "properties", "is_discoverable", "default")...),
		"createChannel", "request-property-default-value-changed",
	},
	"a default gone": {
		set(nil, schema("Page", "default")...),
		"listChannelMessages listGroupMessages listPrivateMessages listUnreadMessages searchAgents searchChannelMessages " +
			"searchChannels searchGroupMessages searchGroups searchPrivateMessages",
		"request-parameter-default-value-removed request-property-default-value-removed",
	},
	"another default in a query": {
		func(document object) { parameter(document, 2)["schema"] = object{"type": "boolean", "default": false} },
		"listUnreadMessages", "request-parameter-default-value-changed",
	},
	"a new value in a closed enum": {
		set([]any{"OK", "DEGRADED", "ASLEEP"}, schema("HealthStatus", "enum")...),
		"getHealth", "response-property-enum-value-added",
	},
	"an error code removed": {
		func(document object) {
			code := at(document, schema("ErrorCode")...)
			code["enum"] = slices.DeleteFunc(code["enum"].([]any), func(value any) bool { return value == "payment_unknown" })
		}, "*", "response-property-enum-value-removed",
	},
	"an error status removed": {
		set(nil, operation("/chat/private/send", "post", "responses", "404")...),
		"sendPrivateMessage", "response-non-success-status-removed",
	},
	"the settlement's header": {
		set(nil, operation("/chat/private/send", "post", "responses", "200", "headers", "PAYMENT-RESPONSE")...),
		"sendPrivateMessage", "optional-response-header-removed",
	},
	"a lower price": {set("0.004000", price...), "sendPrivateMessage", "price-changed"},
	"a price on what was free": {
		func(document object) {
			set(at(document, price[:len(price)-2]...), operation("/skill", "get", "x-payment-info")...)(document)
		},
		"getSkill", "price-changed",
	},
	"x402 no longer taken": {
		set([]any{object{"mpp": object{}}}, operation("/chat/private/send", "post", "x-payment-info", "protocols")...),
		"sendPrivateMessage", "protocol-removed",
	},
	"a key for what was open": {
		set(nil, operation("/health", "get", "security")...),
		"getHealth", "security-changed",
	},
	"no key any more": {
		set([]any{}, operation("/agent/me", "get", "security")...),
		"getOwnAgent", "security-changed",
	},
	"the key in another header": {
		set("Authorization", "components", "securitySchemes", "apiKey", "name"), "*", "security-changed",
	},
}

// TestBreaks: compare names the kind of each breaking edit and the operations that it breaks.
func TestBreaks(t *testing.T) {
	t.Parallel()
	for name, c := range breakingEdits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := compare(released(t), edited(t, c.edit))
			if err != nil {
				t.Fatal(err)
			}
			var operations, kinds []string
			for _, b := range result.breaks {
				operations, kinds = append(operations, b.operation), append(kinds, b.kind)
			}
			if c.operations == "*" && len(result.breaks) > 30 { // nearly all of them
				operations = []string{"*"}
			}
			if diff := cmp.Diff(c.operations, words(operations)); diff != "" {
				t.Errorf("breaks other operations (-want +got):\n%s%v", diff, result.breaks)
			}
			if diff := cmp.Diff(c.kinds, words(kinds)); diff != "" {
				t.Errorf("breaks otherwise (-want +got):\n%s%v", diff, result.breaks)
			}
			if len(result.forbidden("## Unreleased\n\n### Breaking\n\n- "+words(operations)+"\n")) != len(result.breaks) {
				t.Error("a break passes without a higher major version")
			}
		})
	}
}

// parameter returns a parameter of listUnreadMessages.
func parameter(document object, i int) object {
	return at(document, operation("/agent/unread", "get")...)["parameters"].([]any)[i].(object)
}

// words joins the sorted list without duplicates.
func words(list []string) string {
	slices.Sort(list)
	return strings.Join(slices.Compact(list), " ")
}

// TestDeprecatedRemoval: the removal of a deprecated operation or parameter breaks its callers too.
func TestDeprecatedRemoval(t *testing.T) {
	t.Parallel()
	deprecate := func(document object) {
		for _, path := range []string{"/message/react", "/agent/me"} {
			for method := range at(document, "paths", path) {
				set(true, operation(path, method, "deprecated")...)(document)
				set("2020-01-01", operation(path, method, "x-sunset")...)(document)
				set("alpha", operation(path, method, "x-stability-level")...)(document)
			}
		}
		set(copyOf(document, operation("/agent/unread", "get")...), operation("/agent/me", "put")...)(document)
		set("mendOwnAgent", operation("/agent/me", "put", "operationId")...)(document)
		parameter(document, 2)["deprecated"] = true
	}
	without := edited(t, func(document object) {
		deprecate(document)
		set(nil, "paths", "/message/react")(document)
		set(nil, operation("/agent/me", "get")...)(document)
		unread := at(document, operation("/agent/unread", "get")...)
		unread["parameters"] = slices.Delete(unread["parameters"].([]any), 2, 3)
	})
	result, err := compare(edited(t, deprecate), without)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, b := range result.breaks {
		found = append(found, b.operation+" "+b.kind)
	}
	want := []string{
		"getOwnAgent api-removed-without-deprecation",
		"listUnreadMessages request-parameter-removed",
		"reactToMessage api-path-removed-without-deprecation",
	}
	if diff := cmp.Diff(want, found); diff != "" { // the kinds are oasdiff's words
		t.Errorf("removed after their deprecation (-want +got):\n%s", diff)
	}
}

// TestHarmless: edits that break no client pass.
func TestHarmless(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(object){
		"nothing": func(object) {},
		"a reference without a description of its own": set(object{"$ref": "#/components/schemas/AgentID"},
			schema("SendPrivateMessageRequest", "properties", "recipient_agent_id")...),
		"a deprecated operation": set(true, operation("/agent/me", "get", "deprecated")...),
		"deprecated fields": func(document object) {
			set(true, schema("EditAgentRequest", "properties", "is_discoverable", "deprecated")...)(document)
			set(true, schema("ActionResult", "properties", "message", "deprecated")...)(document)
		},
		"a wider text":         set(32768, schema("Content", "maxLength")...),
		"a new response field": set(newText, schema("SentPrivateMessage", "properties", "place")...),
		"a new error code": func(document object) {
			code := at(document, schema("ErrorCode")...)
			code["enum"] = append(code["enum"].([]any), "too_tired")
		},
		"a further way to pay": set([]any{object{"x402": object{}}, object{"mpp": object{}}},
			operation("/chat/private/send", "post", "x-payment-info", "protocols")...),
		"the key by its own line": set([]any{object{"apiKey": []any{}}}, operation("/agent/me", "get", "security")...),
		"a key under another label": func(document object) {
			schemes := at(document, "components", "securitySchemes")
			schemes["key"] = schemes["apiKey"]
			delete(schemes, "apiKey")
			document["security"] = []any{object{"key": []any{}}}
		},
		"a schema under another name": func(document object) {
			schemas := at(document, "components", "schemas")
			schemas["Posted"] = schemas["SentMessage"]
			media := at(document, operation("/chat/group/send", "post", "responses", "200", "content", "application/json")...)
			media["schema"] = object{"$ref": "#/components/schemas/Posted"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := compare(released(t), edited(t, edit))
			if err != nil {
				t.Fatal(err)
			}
			if len(result.breaks) > 0 {
				t.Errorf("is taken for a break: %v", result.breaks)
			}
		})
	}
}

// copyOf returns a copy of an object of the contract.
func copyOf(document object, keys ...string) object {
	text, err := yaml.Marshal(at(document, keys...))
	if err != nil {
		panic(err)
	}
	var again object
	if err := yaml.Unmarshal(text, &again); err != nil {
		panic(err)
	}
	return again
}

// TestDeliberateBreak: a break passes only with a higher major version and its operation in the changelog.
func TestDeliberateBreak(t *testing.T) {
	t.Parallel()
	const named = "# Changelog\n\n## Unreleased\n\n### Breaking\n\n- `sendPrivateMessage` costs more.\n\n### Added\n\n- tea\n"
	for name, c := range map[string]struct {
		version, changelog string
		passes             bool
	}{
		"version and changelog":           {"2.0.0", named, true},
		"in the section of that version":  {"2.0.0", strings.Replace(named, "Unreleased", "[2.0.0] - 2026-12-01", 1), true},
		"without a version":               {"1.0.0", named, false},
		"a minor version":                 {"1.1.0", named, false},
		"a lower version":                 {"0.9.0", named, false},
		"no version at all":               {"soon", named, false},
		"without a changelog":             {"2.0.0", "# Changelog\n\n## Unreleased\n", false},
		"under another heading":           {"2.0.0", strings.Replace(named, "### Breaking", "### Changed", 1), false},
		"in an old section":               {"2.0.0", strings.Replace(named, "Unreleased", "1.0.0", 1), false},
		"an operation with a longer name": {"2.0.0", strings.Replace(named, "sendPrivateMessage", "sendPrivateMessages", 1), false},
		"another operation":               {"2.0.0", strings.Replace(named, "sendPrivateMessage", "sendGroupMessage", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := compare(released(t), edited(t, func(document object) {
				set("0.006000", price...)(document)
				set(c.version, "info", "version")(document)
			}))
			if err != nil {
				t.Fatal(err)
			}
			forbidden := result.forbidden(c.changelog)
			if len(result.breaks) != 1 || (len(forbidden) == 0) != c.passes {
				t.Errorf("%v: forbidden %v, want a pass: %t", result.breaks, forbidden, c.passes)
			}
		})
	}
}
