package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"

	parley "github.com/parley-chat/parley"
)

type Operation struct {
	// ID is the operationId, such as sendPrivateMessage.
	ID, Method, Path, Summary string
	// Price is in atomic units. 0 is free.
	Price uint64
	// Account is true if the operation needs an API key.
	Account bool
	// ReadOnly is true if the operation changes nothing.
	ReadOnly bool
	// Arguments is the JSON schema of its arguments: the properties of the body, and the parameters.
	Arguments *openapi3.Schema
	// Returns are the fields of a successful response, and Always those that each has.
	Returns, Always []string

	inQuery map[string]bool
}

// Contract is the operations of the contract that is compiled in, by operationId.
type Contract map[string]*Operation

// LoadContract reads the contract that is compiled in.
func LoadContract() (Contract, error) {
	document, err := parley.Document()
	if err != nil {
		return nil, err
	}
	contract := Contract{}
	for path, item := range document.Paths.Map() {
		for method, described := range item.Operations() {
			o := &Operation{
				ID: described.OperationID, Method: method, Path: path, Summary: described.Summary,
				Arguments: openapi3.NewObjectSchema(), inQuery: map[string]bool{},
			}
			if o.Price, err = parley.Price(described); err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			security := document.Security
			if described.Security != nil {
				security = *described.Security
			}
			o.Account = len(security) > 0
			o.ReadOnly, _ = described.Extensions["x-read-only"].(bool)
			o.takeArguments(described)
			if response := described.Responses.Status(http.StatusOK); response != nil && response.Value.Content.Get("application/json") != nil {
				schema := response.Value.Content.Get("application/json").Schema.Value
				o.Returns, o.Always = slices.Sorted(maps.Keys(schema.Properties)), schema.Required
			}
			contract[o.ID] = o
		}
	}
	return contract, nil
}

// takeArguments makes one schema of the body and the parameters. The contract has no name in both.
func (o *Operation) takeArguments(described *openapi3.Operation) {
	if described.RequestBody != nil {
		*o.Arguments = *described.RequestBody.Value.Content.Get("application/json").Schema.Value
	}
	for _, parameter := range described.Parameters {
		if parameter.Value.In != openapi3.ParameterInQuery {
			continue
		}
		o.inQuery[parameter.Value.Name] = true
		o.Arguments.WithPropertyRef(parameter.Value.Name, parameter.Value.Schema)
		if parameter.Value.Required {
			o.Arguments.Required = append(o.Arguments.Required, parameter.Value.Name)
		}
	}
	o.Arguments.AdditionalProperties = openapi3.AdditionalProperties{Has: new(false)}
}

func (c Contract) Operation(id string) (*Operation, error) {
	if o := c[id]; o != nil {
		return o, nil
	}
	f := failf(ExitUsage, "usage", "prices", "there is no operation %s", VisibleName(id))
	start := strings.IndexFunc(id, unicode.IsLetter) + 1 // 0 if it has none
	verb := strings.ToLower(id[:start+strings.IndexFunc(id[start:]+"X", unicode.IsUpper)])
	if start > 0 && slices.ContainsFunc(c.ByPath(), func(o *Operation) bool { return strings.Contains(strings.ToLower(o.ID), verb) }) {
		f.Args = object{"operation": verb}
		f.Next = f.Action.Line(f.Args)
	}
	return nil, f
}

// takes returns the arguments of the operation, as objects and in words.
func (o *Operation) takes() (arguments []any, lines []string) {
	for _, name := range slices.Sorted(maps.Keys(o.Arguments.Properties)) {
		schema, required := o.Arguments.Properties[name].Value, slices.Contains(o.Arguments.Required, name)
		kind := strings.Join(schema.Type.Slice(), ", ")
		arguments = append(arguments, object{"name": name, "type": kind, "required": required, "description": schema.Description})
		lines = append(lines, fmt.Sprintf("%s (%s%s) %s", name, kind, map[bool]string{true: ", required"}[required], schema.Description))
	}
	return arguments, lines
}

func (c Contract) ByPath() []*Operation {
	return slices.SortedFunc(maps.Values(c), func(a, b *Operation) int { return cmp.Compare(a.Path, b.Path) })
}

func (c Contract) At(method, path string) *Operation {
	for _, o := range c {
		if o.Method == method && o.Path == path {
			return o
		}
	}
	return nil
}

// Check returns a failure if arguments are not as the contract says.
func (o *Operation) Check(arguments map[string]any) error {
	for name, value := range arguments {
		text, _ := value.(string)
		switch line := strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(text); {
		case strings.ContainsRune(text, 0) || !utf8.ValidString(text):
			return Usagef("%s: it has the character U+0000, or bytes that are not UTF-8", name)
		case name != "name" && name != "description" || text == "": // the server shows those to others
		case strings.TrimSpace(text) == "":
			return Usagef("%s: it must have a visible character", name)
		case strings.ContainsFunc(line, unicode.IsControl) || name == "name" && line != text:
			return Usagef("%s: it has a control character, such as a line break", name)
		case strings.ContainsFunc(text, neverShown):
			return Usagef("%s: it has a character that is not seen, such as one without width", name)
		case name == "name" && text[0] == '#' && strings.HasSuffix(o.ID, "Channel"):
			return Usagef("%s: write it without the #, which marks a channel", name)
		}
	}
	if err := o.Arguments.VisitJSON(arguments, openapi3.MultiErrors()); err != nil {
		return Usagef("%s", strings.Join(shortened(err), "; "))
	}
	return nil
}

// checkGiven is Check without what is missing: before names are looked up, which is paid.
func (o *Operation) checkGiven(arguments map[string]any) error {
	given, schema := *o, *o.Arguments
	schema.Required, schema.MinProps, given.Arguments = nil, 0, &schema
	return given.Check(arguments)
}

// shortened returns what is wrong with arguments without the schema and the value, which are long.
func shortened(err error) (texts []string) {
	switch e := err.(type) { //nolint:errorlint // the library returns these types unwrapped
	case openapi3.MultiError:
		for _, one := range e {
			texts = append(texts, shortened(one)...)
		}
		return texts
	case *openapi3.SchemaError:
		name := strings.Join(e.JSONPointer(), ".")
		if name != "" {
			name += ": "
		}
		return []string{name + reason(e)}
	}
	return []string{err.Error()}
}

// reason returns what is wrong with a value in words, where the library would show an expression.
func reason(e *openapi3.SchemaError) string {
	switch {
	case e.SchemaField == "pattern" && e.Schema.Extensions["x-text"] != nil:
		return "it must have a visible character"
	case e.SchemaField == "pattern" && e.Schema.Example != nil:
		return fmt.Sprintf("it must have the form of %v", e.Schema.Example)
	case e.SchemaField == "minLength" && e.Value == "":
		return "it is empty"
	case e.SchemaField == "minProperties":
		return "there is nothing to change; name at least one field more"
	}
	return e.Reason
}

// decides reports whether a response to a paid call can be the server's: a success has the fields of the contract, and a refusal says why
// and whether the call was charged. Any other response, such as that of a proxy, leaves the outcome open.
func (o *Operation) decides(status int, body []byte) bool {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(body, &fields) // what is no object has no fields
	lacks := func(name string) bool { return fields[name] == nil }
	if status == http.StatusOK {
		return fields != nil && !slices.ContainsFunc(o.Always, lacks) && string(fields["success"]) != "false"
	}
	charged := string(fields["charged"])
	return !lacks("code") && (charged == "true" || charged == "false")
}

func (o *Operation) request(ctx context.Context, base string, arguments map[string]any) (*http.Request, error) {
	query, body := url.Values{}, map[string]any{}
	for name, value := range arguments {
		if o.inQuery[name] {
			query.Set(name, fmt.Sprint(value))
		} else {
			body[name] = value
		}
	}
	address := strings.TrimSuffix(base, "/") + o.Path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	if o.Method == http.MethodGet {
		return http.NewRequestWithContext(ctx, o.Method, address, nil)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, o.Method, address, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	return request, nil
}

// hash names a call by what it does, so that the same call made again can be recognized.
func (o *Operation) hash(arguments map[string]any, key string) string {
	text, _ := json.Marshal([]any{o.ID, arguments, key}) // JSON values; the keys of maps are sorted
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}
