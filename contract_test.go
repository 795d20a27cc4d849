package parley

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

//go:embed test/testdata/interface.txt
var interfaceTable string

func contract(t *testing.T) *openapi3.T {
	t.Helper()
	document, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if got, want := Version(), contract(t).Info.Version; got != want {
		t.Errorf("Version() is %q, info.version of the contract is %q", got, want)
	}
}

// TestContractIsPlainYAML: common parsers of YAML 1.2 read a merge key as a name, and not every tool reads anchors and aliases.
func TestContractIsPlainYAML(t *testing.T) {
	t.Parallel()
	var document yaml.Node
	if err := yaml.Unmarshal(Contract, &document); err != nil {
		t.Fatal(err)
	}
	var walk func(*yaml.Node)
	walk = func(node *yaml.Node) {
		if node.Anchor != "" || node.Kind == yaml.AliasNode || node.Tag == "!!merge" {
			t.Errorf("openapi.yaml:%d has an anchor, an alias or a merge key", node.Line)
		}
		for _, child := range node.Content {
			walk(child)
		}
	}
	walk(&document)
}

// TestContractIsShort: a language model reads the description before its first call.
func TestContractIsShort(t *testing.T) {
	t.Parallel()
	if words := len(strings.Fields(contract(t).Info.Description)); words > 2400 {
		t.Errorf("info.description has %d words, want at most 2,400; rules of one operation, header, response or error belong there", words)
	}
}

// TestContractIsTheInterface compares openapi.yaml with the specification's tables in test/testdata/interface.txt: nothing is missing,
// nothing differs, and only what the tables have is added. Their mark * tells readers what the specification lacks.
func TestContractIsTheInterface(t *testing.T) {
	t.Parallel()
	var want []string
	for line := range strings.Lines(interfaceTable) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(line, "|")
		if len(parts) != 3 {
			t.Fatalf("a line of the table has %d parts: %s", len(parts), line)
		}
		head := strings.Join(strings.Fields(parts[0]), " ")
		for i, part := range parts {
			fields := strings.Fields(strings.ReplaceAll(part, "*", ""))
			if i > 0 {
				sort.Strings(fields)
			}
			parts[i] = strings.Join(fields, " ")
		}
		want = append(want, head+" | "+parts[1]+" | "+parts[2])
	}
	var have []string
	document := contract(t)
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			have = append(have, describe(document, method, path, operation))
			for _, line := range want { // the tables describe nested fields of some responses
				inside, ok := strings.CutPrefix(line, "IN "+method+" "+path+" ")
				if name, _, _ := strings.Cut(inside, " |"); ok {
					have = append(have, fmt.Sprintf("IN %s %s %s |  | %s", method, path, name, strings.Join(fields(within(operation, name)), " ")))
				}
			}
		}
	}
	sort.Strings(want)
	sort.Strings(have)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the contract is not the specification (-specification +contract):\n%s", diff)
	}
}

// describe writes an operation the way the table does.
func describe(document *openapi3.T, method, path string, operation *openapi3.Operation) string {
	security := document.Security
	if operation.Security != nil {
		security = *operation.Security
	}
	key := "open"
	if len(security) > 0 {
		key = "key"
	}
	price := "free"
	if info, ok := operation.Extensions["x-payment-info"].(map[string]any); ok {
		price = fmt.Sprint(info["price"].(map[string]any)["amount"])
	}
	var request []string
	for _, parameter := range operation.Parameters {
		request = append(request, field(parameter.Value.Name, parameter.Value.Schema.Value, parameter.Value.Required))
	}
	if operation.RequestBody != nil {
		request = append(request, fields(operation.RequestBody.Value.Content["application/json"].Schema.Value)...)
	}
	response := fields(operation.Responses.Value("200").Value.Content["application/json"].Schema.Value)
	sort.Strings(request)
	return fmt.Sprintf("%s %s %s %s | %s | %s", method, path, key, price, strings.Join(request, " "), strings.Join(response, " "))
}

// within returns the schema of a response's field, or of its entries.
func within(operation *openapi3.Operation, name string) *openapi3.Schema {
	schema := operation.Responses.Value("200").Value.Content["application/json"].Schema.Value.Properties[name].Value
	if schema.Items != nil {
		return schema.Items.Value
	}
	return schema
}

func fields(schema *openapi3.Schema) []string {
	var list []string
	for name, property := range schema.Properties {
		list = append(list, field(name, property.Value, slices.Contains(schema.Required, name)))
	}
	sort.Strings(list)
	return list
}

func field(name string, schema *openapi3.Schema, required bool) string {
	kind := schema.Type.Slice()[0]
	if kind == "array" {
		kind = schema.Items.Value.Type.Slice()[0] + "[]"
	}
	text := name + ":" + kind
	if required {
		text += "!"
	}
	if schema.Default != nil {
		text += "=" + fmt.Sprint(schema.Default)
	}
	if schema.Min != nil {
		text += ">" + strconv.FormatFloat(*schema.Min, 'f', -1, 64)
	}
	if schema.Max != nil && *schema.Max < 1<<53-1 { // 2^53-1 is the limit of JSON integers, not ours
		text += "<" + strconv.FormatFloat(*schema.Max, 'f', -1, 64)
	}
	if kind == "string[]" && name == "pinned_message_ids" && schema.MaxItems != nil {
		text += "<" + strconv.FormatUint(*schema.MaxItems, 10)
	}
	if strings.HasSuffix(name, "username") {
		text += "/" + schema.Pattern + "/"
	}
	return text
}

var operationID = regexp.MustCompile(`^[a-z]+([A-Z][a-z]+)+$`) // a verb and a noun: SDKs make method names of it

// TestContractHabits checks what every operation must have, in addition to the specification's tables.
func TestContractHabits(t *testing.T) {
	t.Parallel()
	document := contract(t)
	seen := map[string]bool{}
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			name := method + " " + path
			if !operationID.MatchString(operation.OperationID) || seen[operation.OperationID] {
				t.Errorf("%s: operationId %q is not a unique verb and noun in lowerCamel", name, operation.OperationID)
			}
			seen[operation.OperationID] = true
			_, priced := operation.Extensions["x-payment-info"]
			for status, header := range map[string]string{
				"200": "PAYMENT-RESPONSE", "400": "", "402": "PAYMENT-REQUIRED", "409": "", "503": "",
			} {
				response := operation.Responses.Value(status)
				if priced && (response == nil || header != "" && response.Value.Headers[header] == nil) {
					t.Errorf("%s is paid but does not describe %s %s", name, status, header)
				}
			}
			if !priced && operation.Responses.Value("402") != nil {
				t.Errorf("%s is free but describes a 402", name)
			}
			if operation.RequestBody != nil {
				media := operation.RequestBody.Value.Content["application/json"]
				if err := media.Schema.Value.VisitJSON(media.Example); media.Example == nil || err != nil {
					t.Errorf("%s: the request's example does not fit its schema: %v", name, err)
				}
			}
			for status, response := range operation.Responses.Map() {
				media := response.Value.Content["application/json"]
				if status == "204" {
					if media != nil {
						t.Errorf("%s: 204 describes content", name)
					}
				} else if media == nil || media.Example == nil {
					t.Errorf("%s: %s has no example", name, status)
				} else if err := media.Schema.Value.VisitJSON(media.Example); err != nil {
					t.Errorf("%s: the example of %s does not fit its schema: %v", name, status, err)
				}
				if response.Value.Headers["X-Request-Id"] == nil {
					t.Errorf("%s: %s does not describe X-Request-Id", name, status)
				}
			}
		}
	}
}

// TestContractSchemas checks all schemas, also nested ones. Requests reject unknown fields and are bounded; parameters have examples;
// schemas and properties are described.
func TestContractSchemas(t *testing.T) {
	t.Parallel()
	document := contract(t)
	require := func(at string, broken bool, problem string) {
		if broken {
			t.Errorf("%s %s", at, problem)
		}
	}
	described := func(at string, schema *openapi3.Schema, named bool) {
		require(at, named && schema.Description == "", "has no description")
	}
	closed := func(at string, schema *openapi3.Schema, _ bool) {
		allowed := schema.AdditionalProperties.Has
		require(at, schema.Type.Is("object") && (allowed == nil || *allowed), "accepts unknown fields")
	}
	bounded := func(at string, schema *openapi3.Schema, _ bool) {
		whole := strings.HasPrefix(schema.Pattern, "^") && strings.HasSuffix(schema.Pattern, "$")
		enum := len(schema.Enum) > 0
		number := schema.Type.Is("integer") || schema.Type.Is("number")
		text := schema.Type.Is("string") && schema.MaxLength == nil
		require(at, text && !enum && !whole, "has no maxLength, enum or pattern for the whole text")
		require(at, number && !enum && (schema.Min == nil || schema.Max == nil), "has no minimum and maximum")
		require(at, schema.Type.Is("array") && schema.MaxItems == nil, "has no maxItems")
	}
	for name, schema := range document.Components.Schemas {
		eachSchema(name, schema, true, described)
	}
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			name := method + " " + path
			for _, parameter := range operation.Parameters {
				at := name + " " + parameter.Value.Name
				require(at, parameter.Value.Example == nil, "has no example")
				eachSchema(at, parameter.Value.Schema, false, bounded)
			}
			if operation.RequestBody != nil {
				schema := operation.RequestBody.Value.Content["application/json"].Schema
				eachSchema(name, schema, true, described, closed, bounded)
			}
			for status, response := range operation.Responses.Map() {
				if media := response.Value.Content["application/json"]; media != nil {
					eachSchema(name+" "+status, media.Schema, true, described)
				}
			}
		}
	}
}

// eachSchema calls the checks with a schema and all schemas inside it. A property is named; an element of a list is not.
func eachSchema(at string, ref *openapi3.SchemaRef, named bool, checks ...func(at string, schema *openapi3.Schema, named bool)) {
	if ref == nil {
		return
	}
	schema := ref.Value
	for _, check := range checks {
		check(at, schema, named)
	}
	for name, property := range schema.Properties {
		eachSchema(at+"."+name, property, true, checks...)
	}
	alone := openapi3.SchemaRefs{schema.Items, schema.Not, schema.AdditionalProperties.Schema}
	inner := slices.Concat(alone, schema.AllOf, schema.OneOf, schema.AnyOf)
	for _, one := range inner {
		eachSchema(at, one, false, checks...)
	}
}
