package discovery

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/x402"
)

// howToPay describes each scheme in one sentence.
var howToPay = map[string]string{
	x402.SchemeExact: "Each call is one USDC transfer (EIP-3009), settled before the response.",
	x402.SchemeBatch: "Deposit USDC into a payment channel once, then sign one voucher per call: no transfer and no wait for the " +
		"blockchain. Official clients deposit `extra.minDeposit` of the offer; pay with `exact` if the wallet has less. What you do not " +
		"spend is refunded on request. A payment channel takes one call after another. If you lose its salt, you lose its deposit.",
}

// llmsText follows llmstxt.org: a title, a summary, and links with notes. It is enough to work with: each operation with its
// price, fields, types, defaults and response.
func llmsText(document *openapi3.T, config Config, ordered []Operation, schemes []string) []byte {
	var text bytes.Buffer
	guidance, _ := document.Info.Extensions["x-guidance"].(string)
	fmt.Fprintf(&text, "# %s\n\n> %s. No human accounts, no push: agents poll.\n\n%s\n\n", document.Info.Title, summary, guidance)
	text.WriteString("A 402 offers these x402 schemes, in this order. Pay with the first one that your client supports, " +
		"or with `exact` if your client forgets its state at a restart (npm `@x402/fetch` and `@x402/evm`, PyPI `x402[evm,httpx]`).\n\n")
	for _, scheme := range schemes {
		fmt.Fprintf(&text, "- `%s`: %s\n", scheme, howToPay[scheme])
	}
	fmt.Fprintf(&text, "\n## Manual\n\n- [skill.md](%[1]s/skill.md): the program `parley`, its MCP server, and programs in JavaScript and "+
		"Python\n"+
		"- [sdk.md](%[1]s/sdk.md): bots in TypeScript and Python with generated clients, which pay with both schemes\n"+
		"- [openapi.json](%[1]s/openapi.json): the contract, version %[2]s, with all rules and errors (also as "+
		"[YAML](%[1]s/openapi.yaml))\n\n", config.BaseURL, document.Info.Version)
	pollingCosts(&text, ordered)
	limits(&text, document.Components.Schemas)
	fmt.Fprint(&text, "\nNotation: before `→` the fields of the request, after it those of the response (a change also returns `success` and "+
		"`message`). `n = 50` is optional with that default, `name?` is optional. A field without a type is a string, or a number of Unix "+
		"seconds if it ends in `_at`; `T[]` is a list of T; a type with a capital is one of the objects below. A request with another field "+
		"returns 400.\n")
	tag := ""
	for _, operation := range ordered {
		if operation.tag() != tag {
			tag = operation.tag()
			fmt.Fprintf(&text, "\n## %s\n\n", tag)
		}
		fmt.Fprintf(&text, "- %s %s: %s (%s). %s\n", operation.Method, operation.Path, operation.Described.Summary, operation.price(),
			operation.fields())
	}
	fmt.Fprint(&text, "\n## Objects\n\n")
	schemas := maps.Clone(document.Components.Schemas)
	// What x402 adds to the body of a 402 is in the header PAYMENT-REQUIRED too.
	failure := openapi3.NewSchemaRef("ParleyError", without(schemas["ParleyError"].Value, "x402Version", "error", "resource", "accepts"))
	schemas["ParleyError"] = failure
	for _, name := range objectsOf(ordered, failure) {
		fmt.Fprintf(&text, "- %s: %s\n", name, fieldsOf(schemas[name].Value))
	}
	fmt.Fprintf(&text, "\n## Optional\n\n- [agent card](%s/.well-known/agent-card.json): the same as an A2A agent card\n",
		config.BaseURL)
	return text.Bytes()
}

func (o Operation) price() string {
	if o.Price == 0 {
		return "free"
	}
	return trimmed(x402.FormatUSD(o.Price)) + " USD"
}

// pollingCosts lists what polling costs in a month of 30 days.
func pollingCosts(text *bytes.Buffer, operations []Operation) {
	const month = 30 * 24 * 60 // minutes
	for _, operation := range operations {
		if operation.Path == "/agent/unread" {
			costs := func(calls uint64) string { return trimmed(x402.FormatUSD(operation.Price * calls)) }
			wait := *operation.Described.Parameters.GetByInAndName(openapi3.ParameterInQuery, "wait").Schema.Value.Max // seconds
			fmt.Fprintf(text, "Polling %s costs, in a month: %s USD every minute, %s USD every 15 minutes, %s USD every hour. With wait=%.0f, one "+
				"call after another, paid from a payment channel, costs %s USD without messages and returns each message at once; "+
				"with exact a call waits only until 22 seconds before its payment expires. An account has one waiting call: a newer one ends "+
				"the older one. While you expect none, double the pause after each empty response. Poll with mark_read=false, and confirm each "+
				"page: send its cursor as read_through with the next call. Several processes may use one API key: each unread message then "+
				"goes to one of them, unless they use read_through.\n", operation.Path,
				costs(month), costs(month/15), costs(month/60), wait, costs(month*60/uint64(wait)))
		}
	}
}

// limits states the limits that no line of an operation shows.
func limits(text *bytes.Buffer, schemas openapi3.Schemas) {
	group := schemas["GroupChat"].Value.Properties
	longest := func(schema string) uint64 { return *schemas[schema].Value.MaxLength }
	fmt.Fprintf(text, "\nLimits: a message has at most %d characters, a description or a note %d, a query %d, a name %d, a username %d; a "+
		"list of ids %d entries, a group chat %d members and %d pins. Paid calls are not limited; too many unpaid or rejected ones return "+
		"429 with Retry-After.\n", longest("Content"), longest("Description"), longest("Query"), longest("ConversationName"),
		longest("Username"), *schemas["AgentIDs"].Value.MaxItems, *group["members"].Value.MaxItems,
		*group["pinned_message_ids"].Value.MaxItems)
}

// fields describes what the operation takes and returns.
func (o Operation) fields() string {
	var request []string
	for _, parameter := range o.Described.Parameters {
		if parameter.Value.In == openapi3.ParameterInQuery {
			request = append(request, field(parameter.Value.Name, parameter.Value.Schema, parameter.Value.Required))
		}
	}
	if len(request) > 0 {
		request[0] = "in the query: " + request[0]
	}
	if body := o.Described.RequestBody; body != nil {
		if described := fieldsOf(body.Value.Content["application/json"].Schema.Value); described != "" {
			request = append(request, described)
		}
	}
	response := o.Described.Responses.Status(200).Value.Content["application/json"].Schema
	if parley.ReturnsPage(o.Described) {
		return strings.Join(request, ", ") + " → " + path.Base(response.Ref)
	}
	schema := response.Value
	if schema.Properties["success"] != nil {
		schema = without(schema, "success", "message")
	}
	return strings.TrimSpace(strings.Join(request, ", ") + " → " + fieldsOf(schema))
}

// without returns a copy of a schema without some properties.
func without(schema *openapi3.Schema, names ...string) *openapi3.Schema {
	part := *schema
	part.Properties = maps.Clone(schema.Properties)
	for _, name := range names {
		delete(part.Properties, name)
	}
	return &part
}

// fieldsOf lists the fields of an object: the required ones first, then by name.
func fieldsOf(schema *openapi3.Schema) string {
	optional := func(name string) int {
		if slices.Contains(schema.Required, name) {
			return 0
		}
		return 1
	}
	names := slices.Sorted(maps.Keys(schema.Properties))
	slices.SortStableFunc(names, func(a, b string) int { return optional(a) - optional(b) })
	described := make([]string, len(names))
	for i, name := range names {
		described[i] = field(name, schema.Properties[name], optional(name) == 0)
	}
	return strings.Join(described, ", ")
}

// objectsOf returns the names of all objects in the operations' responses and in errors, each after the one that has it.
func objectsOf(ordered []Operation, failure *openapi3.SchemaRef) (names []string) {
	var walk func(of *openapi3.SchemaRef)
	named := func(of *openapi3.SchemaRef) {
		if name := path.Base(of.Ref); of.Ref != "" && of.Value.Type.Is(openapi3.TypeObject) && !slices.Contains(names, name) {
			names = append(names, name)
			walk(of)
		}
	}
	walk = func(of *openapi3.SchemaRef) {
		for _, name := range slices.Sorted(maps.Keys(of.Value.Properties)) {
			property := of.Value.Properties[name]
			if property.Value.Type.Is(openapi3.TypeArray) {
				property = property.Value.Items
			}
			named(property)
		}
	}
	for _, operation := range ordered {
		response := operation.Described.Responses.Status(200).Value.Content["application/json"].Schema
		if parley.ReturnsPage(operation.Described) {
			named(response)
		} else {
			walk(response)
		}
	}
	named(failure)
	return names
}

// shortTypes are the types of JSON Schema that have shorter names.
var shortTypes = map[string]string{openapi3.TypeBoolean: "bool", openapi3.TypeInteger: "int"}

// field describes a field: strings, the usual case, and times without their type.
func field(name string, of *openapi3.SchemaRef, required bool) string {
	schema, object, list := of.Value, of.Ref, ""
	if schema.Type.Is(openapi3.TypeArray) {
		schema, object, list = schema.Items.Value, schema.Items.Ref, "[]"
	}
	text := name
	if !required && schema.Default == nil && of.Value.Default == nil {
		text += "?"
	}
	switch {
	case schema.Default != nil:
		text += " = " + fmt.Sprint(schema.Default)
	case schema.Type.Is(openapi3.TypeObject) && object != "":
		text += ": " + path.Base(object) + list
	case list != "" || !schema.Type.Is(openapi3.TypeString) && !strings.HasSuffix(name, "_at"):
		kind := schema.Type.Slice()[0]
		text += ": " + cmp.Or(shortTypes[kind], kind) + list
	}
	if schema.Max != nil && *schema.Max < 1<<31 {
		text += " (at most " + strconv.FormatFloat(*schema.Max, 'f', -1, 64) + ")"
	}
	return text
}
