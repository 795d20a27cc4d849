package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
)

// invalid returns the 400 with at most maxDetails details.
func invalid(details ...gen.ErrorDetail) *problem {
	const longestField = 128 // callers choose the names of unknown fields
	details = details[:min(len(details), maxDetails)]
	parts := make([]string, len(details))
	for i, detail := range details {
		details[i].Field = payment.Shorten(detail.Field, longestField)
		parts[i] = cmp.Or(details[i].Field, "the request body") + " " + detail.Message
	}
	return &problem{status: http.StatusBadRequest, code: gen.ErrorCodeInvalidRequest, details: details,
		message: "the request does not match the contract: " + strings.Join(parts, "; ")}
}

// detail describes what is wrong with a field; "" is the whole body.
func detail(field, message string, values ...any) *gen.ErrorDetail {
	return &gen.ErrorDetail{Field: field, Message: fmt.Sprintf(message, values...)}
}

// validate validates the request against the contract and sets defaults. It runs before the payment, so mistakes are
// free. The handler gets the validated value (KeepValidatedValue).
func (s *Server) validate(c echo.Context) error {
	operation, request := operationFrom(c), c.Request()
	if operation == nil {
		return nil
	}
	if body := bodyFrom(c); len(body) > 0 {
		if media, _, err := mime.ParseMediaType(request.Header.Get("Content-Type")); err != nil || media != "application/json" {
			return &problem{status: http.StatusUnsupportedMediaType, code: gen.ErrorCodeUnsupportedMediaType,
				message: "send the request body with Content-Type: application/json"}
		}
		for mark, coding := range byteOrderMarks {
			if bytes.HasPrefix(body, []byte(mark)) {
				return invalid(*detail("", "begins with a byte order mark (U+FEFF) in %s; send UTF-8 without one", coding))
			}
		}
		if wrong := checkJSON(body, operation); wrong != nil {
			return invalid(*wrong)
		}
	}
	var wrong []gen.ErrorDetail
	if operation.paid() {
		wrong = checkQuery(request.URL.RawQuery, operation)
		if problem := payment.KeyProblem(request.Header); problem != "" {
			wrong = append(wrong, *detail(payment.HeaderIdempotencyKey, "%s", problem))
		}
	}
	err := openapi3filter.ValidateRequest(request.Context(), &openapi3filter.RequestValidationInput{
		Request: request, Route: operation.route,
		Options: &openapi3filter.Options{MultiError: true, KeepValidatedValue: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	})
	if err == nil {
		wrong = append(append(wrong, checkTexts(c, operation)...), checkSkipped(request.URL.Query(), operation)...)
	}
	for _, one := range violations(err) {
		if !slices.ContainsFunc(wrong, func(known gen.ErrorDetail) bool { return known.Field == one.Field }) {
			wrong = append(wrong, one)
		}
	}
	if wrong != nil {
		return invalid(wrong...)
	}
	return nil
}

// byteOrderMarks are invisible, and some editors and libraries write them.
var byteOrderMarks = map[string]string{"\xEF\xBB\xBF": "UTF-8", "\xFE\xFF": "UTF-16", "\xFF\xFE": "UTF-16"}

// checkQuery rejects what parsers read differently or leave out: unknown and repeated parameters, semicolons, broken escapes, and booleans
// such as 1.
func checkQuery(raw string, operation *operation) (wrong []gen.ErrorDetail) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		wrong = append(wrong, *detail("?", "is not a valid query; separate parameters with & and escape other characters with %%"))
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		parameter, value := operation.route.Operation.Parameters.GetByInAndName(openapi3.ParameterInQuery, name), query.Get(name)
		switch {
		case parameter == nil:
			wrong = append(wrong, *detail("?"+name, "is not a parameter of this operation%s", operation.knownParameters()))
		case len(query[name]) > 1:
			wrong = append(wrong, *detail("?"+name, "must be sent once"))
		case value == "": // the validator would use the default
			wrong = append(wrong, *detail("?"+name, "must have a value; leave it out instead"))
		case parameter.Schema.Value.Type.Is(openapi3.TypeBoolean) && value != "true" && value != "false":
			wrong = append(wrong, *detail("?"+name, "must be true or false"))
		}
	}
	return wrong
}

// checkSkipped rejects a page that begins after more messages than its parameter allows (x-max-skipped). The query has all parameters: the
// validator adds defaults.
func checkSkipped(query url.Values, operation *operation) []gen.ErrorDetail {
	parameter := operation.route.Operation.Parameters.GetByInAndName(openapi3.ParameterInQuery, "page")
	if parameter == nil {
		return nil
	}
	most, limited := parameter.Extensions["x-max-skipped"].(float64)
	page, _ := strconv.ParseInt(query.Get("page"), 10, 64) // validated, as is the size
	size, _ := strconv.ParseInt(query.Get("page_size"), 10, 64)
	if !limited || (page-1)*size <= int64(most) {
		return nil
	}
	return []gen.ErrorDetail{*detail("?page", "skips more than %.0f messages, which is (page - 1) * page_size; confirm earlier messages with "+
		"read_through, or read them with mark_read true, and ask for page 1", most)}
}

// checkJSON rejects JSON that the validator accepts but that parsers read differently: duplicate names, data after the value, invalid UTF-8
// (also lone surrogates), U+0000, which PostgreSQL cannot store, and null, which the validator would replace by a default. It also rejects
// more entries or fields than the operation allows, because the validator creates an error for each.
func checkJSON(body []byte, operation *operation) *gen.ErrorDetail {
	decoder, bounds := jsontext.NewDecoder(bytes.NewReader(body)), &operation.bounds
	for {
		token, err := decoder.ReadToken()
		switch {
		case errors.Is(err, io.EOF) && decoder.StackDepth() == 0 && decoder.InputOffset() > 0:
			return nil
		case err != nil:
			syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
			switch {
			case !ok:
				return detail("", "is not valid JSON")
			case errors.Is(err, io.ErrUnexpectedEOF): // a truncated value has no field
				syntax.JSONPointer = ""
			}
			return detail(string(syntax.JSONPointer), "is not valid JSON at byte %d: %s", syntax.ByteOffset, plainReason(syntax.Err))
		case token.Kind() == '0' && strings.ContainsAny(token.String(), ".eE"): // every number of the contract is an integer
			return detail(string(decoder.StackPointer()), "must be an integer without fraction and exponent")
		case token.Kind() == 'n':
			pointer, remedy := string(decoder.StackPointer()), "must not be null; leave it out instead"
			if pointer == "" || slices.Contains(operation.body().Required, strings.TrimPrefix(pointer, "/")) {
				remedy = "is required and must not be null"
			}
			return detail(pointer, "%s", remedy)
		case token.Kind() == '"' && strings.ContainsRune(token.String(), 0):
			return detail(string(decoder.StackPointer()), "must not contain U+0000")
		case decoder.StackDepth() > maxDepth:
			return detail("", "is nested more than %d levels deep", maxDepth)
		}
		switch kind, length := decoder.StackIndex(decoder.StackDepth()); {
		case decoder.StackDepth() == 0 && length > 1:
			return detail("", "has trailing data after the JSON value; send one JSON object")
		case kind == '[' && length > int64(bounds.entries):
			return detail(string(decoder.StackPointer().Parent()), "must have at most %d entries", bounds.entries)
		case kind == '{' && length > int64(2*bounds.members): // names and values
			return detail(string(decoder.StackPointer().Parent()), "has too many fields%s", operation.knownFields())
		}
	}
}

// plainReason returns the reason of the parser without the input that it may quote.
func plainReason(err error) string {
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return "a name occurs twice in one object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "unexpected end"
	}
	reason, _, _ := strings.Cut(err.Error(), " (")
	if i := strings.IndexAny(reason, "'\"`"); i >= 0 {
		reason = strings.TrimSpace(reason[:i])
	}
	return reason
}

// violations turns the validator's errors into details: one per field, sorted, without the values.
func violations(err error) []gen.ErrorDetail {
	var details []gen.ErrorDetail
	var walk func(err error, field string)
	var parameter *openapi3.Parameter
	walk = func(err error, field string) {
		message := "does not match the contract"
		switch e := err.(type) { //nolint:errorlint // walks the validator's error tree, one level at a time
		case openapi3.MultiError:
			for _, inner := range e {
				walk(inner, field)
			}
			return
		case *openapi3filter.RequestError:
			if e.Parameter != nil {
				parameter, field = e.Parameter, "?"+e.Parameter.Name
			}
			if message = e.Reason; e.Err != nil {
				walk(e.Err, field)
				return
			}
		case *openapi3.SchemaError:
			if saidByAnother(e) {
				return
			}
			field, message = violation(e, field)
		case *openapi3filter.ParseError: // only of a parameter: checkJSON parses bodies
			message = "has the wrong type"
			if parameter != nil {
				message = "must be of type " + parameter.Schema.Value.Type.Slice()[0]
			}
		default:
			if errors.Is(err, openapi3filter.ErrInvalidRequired) {
				message = "is missing; send a JSON object"
			}
		}
		details = append(details, gen.ErrorDetail{Field: field, Message: message})
	}
	if err != nil {
		walk(err, "")
	}
	slices.SortFunc(details, func(a, b gen.ErrorDetail) int { return strings.Compare(a.Field, b.Field) })
	return slices.Compact(details)
}

// pointerEscapes escapes a name for a JSON pointer (RFC 6901).
var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// notSpace begins the pattern of texts that must not be white space alone. \s is only ASCII in Go, so the others follow it.
const notSpace = `[^\s`

// saidByAnother reports whether the value also violates a rule that says better what is wrong: the shortest length, or the range.
func saidByAnother(e *openapi3.SchemaError) bool {
	return e.SchemaField == "pattern" && e.Value == "" && e.Schema.MinLength > 0 || e.SchemaField == "format" && e.Schema.Max != nil
}

// violation returns the field and what it must be.
func violation(e *openapi3.SchemaError, field string) (of, message string) {
	for _, key := range e.JSONPointer() {
		field += "/" + pointerEscapes.Replace(key)
	}
	schema := e.Schema
	switch e.SchemaField {
	case "required":
		return field, "is required"
	case "properties", "additionalProperties":
		// Only the reason has the name of an unknown property: property "text" is unsupported.
		if quoted := strings.TrimSuffix(strings.TrimPrefix(e.Reason, "property "), " is unsupported"); quoted != e.Reason {
			if name, err := strconv.Unquote(quoted); err == nil {
				field += "/" + pointerEscapes.Replace(name)
			}
		}
		return field, "is not a field of this request" + fieldsOf(schema)
	case "pattern":
		switch {
		case strings.HasPrefix(schema.Pattern, "^"+agentPrefix):
			return field, fmt.Sprintf("must be the %s (%s), and is %q; POST /agent/profile returns the id of a username", schema.Title,
				schema.Pattern, begin(e.Value))
		case schema.Title != "": // an id: name the kind
			return field, fmt.Sprintf("must be the %s (%s), and is %q", schema.Title, schema.Pattern, begin(e.Value))
		case strings.HasPrefix(schema.Pattern, notSpace):
			return field, "must not be white space alone"
		}
		return field, fmt.Sprintf("must match %s, and is %q", schema.Pattern, begin(e.Value))
	case "type":
		return field, "must be of type " + strings.Join(schema.Type.Slice(), " or ")
	case "minLength", "maxLength":
		text, _ := e.Value.(string)
		length := utf8.RuneCountInString(text)
		return field, fmt.Sprintf("must have %s characters, and has %d", between(schema.MinLength, schema.MaxLength), length)
	case "minItems", "maxItems":
		return field, "must have " + between(schema.MinItems, schema.MaxItems) + " entries"
	case "minProperties":
		if len(schema.Required) > 0 {
			return field, fmt.Sprintf("must have %s and at least one other field; its fields are %s", strings.Join(schema.Required, ", "),
				names(schema))
		}
		return field, fmt.Sprintf("must have at least %d of the fields %s", schema.MinProps, names(schema))
	case "minimum":
		return field, fmt.Sprintf("must be at least %v", *schema.Min)
	case "maximum":
		return field, "must be at most " + strconv.FormatFloat(*schema.Max, 'f', -1, 64)
	}
	return field, "violates the contract's rule " + strconv.Quote(e.SchemaField)
}

// begin returns the beginning of what was sent in place of an id. It is too short for an API key.
func begin(value any) string {
	const longest = len("channel_01k70taybbefyb5rymrpvaf640")
	return payment.Shorten(fmt.Sprint(value), longest)
}

// knownFields lists the fields of the request body, for error messages.
func (o *operation) knownFields() string {
	if o.route.Operation.RequestBody == nil {
		return ""
	}
	return fieldsOf(o.body())
}

// body is the schema of the request body, which the operation has.
func (o *operation) body() *openapi3.Schema {
	return o.route.Operation.RequestBody.Value.Content["application/json"].Schema.Value
}

// knownParameters lists the parameters in the query, for error messages.
func (o *operation) knownParameters() string {
	var known []string
	for _, parameter := range o.route.Operation.Parameters {
		if parameter.Value.In == openapi3.ParameterInQuery {
			known = append(known, parameter.Value.Name+" ("+parameter.Value.Schema.Value.Type.Slice()[0]+")")
		}
	}
	if known == nil {
		return ", which has no query parameters"
	}
	return "; its parameters are " + strings.Join(known, ", ")
}

func fieldsOf(schema *openapi3.Schema) string {
	if len(schema.Properties) == 0 {
		return ", which has no fields"
	}
	return "; its fields are " + names(schema)
}

func names(schema *openapi3.Schema) string {
	return strings.Join(slices.Sorted(maps.Keys(schema.Properties)), ", ")
}

func between(least uint64, most *uint64) string {
	switch {
	case most == nil:
		return fmt.Sprintf("at least %d", least)
	case least == 0:
		return fmt.Sprintf("at most %d", *most)
	}
	return fmt.Sprintf("%d to %d", least, *most)
}

// canonical returns the content of the request in a form that does not depend on field order or white space. The
// payment's fingerprint covers it, and the recovery worker uses it.
func canonical(c echo.Context) ([]byte, error) {
	if body, ok := c.Request().Body.(interface{ ValidatedValue() any }); ok {
		content := body.ValidatedValue()
		if object, ok := content.(map[string]any); ok && operationFrom(c).ID == createAccount {
			object = maps.Clone(object)
			delete(object, "tan") // which the ledger must not know: the payment has reserved the username when the stored request is used
			content = object
		}
		return json.Marshal(content)
	}
	query := c.Request().URL.Query()
	if query.Get("wait") == "0" { // its default: servers that do not know the parameter yet store the same request without it
		query.Del("wait")
	}
	return []byte(query.Encode()), nil
}
