package discovery

import (
	"encoding/json"
	"fmt"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json/jsontext"
)

// BazaarEntry returns the catalogue entry of an operation (x402 extension "bazaar"): an example call and its JSON
// Schema, from the contract. Facilitators list paid operations with it. It is short, because it travels in a header: proxies accept 4 KiB
// of headers.
func BazaarEntry(described *openapi3.Operation, method string, needsKey bool) (jsontext.Value, error) {
	input := map[string]any{"type": "http", "method": method}
	inputSchema := map[string]any{
		"type":   map[string]any{"const": "http"},
		"method": map[string]any{"enum": []string{method}},
	}
	required := []string{"type", "method"}
	if needsKey {
		input["headers"] = map[string]any{"X-API-KEY": "your API key"}
		inputSchema["headers"] = map[string]any{
			"type": "object", "properties": map[string]any{"X-API-KEY": map[string]any{"type": "string"}}, "required": []string{"X-API-KEY"},
		}
		required = append(required, "headers")
	}
	switch {
	case described.RequestBody != nil:
		media := described.RequestBody.Value.Content["application/json"]
		input["bodyType"], input["body"] = "json", media.Example
		inputSchema["bodyType"] = map[string]any{"enum": []string{"json"}}
		inputSchema["body"] = jsonSchema(media.Schema.Value)
		required = append(required, "bodyType", "body")
	default: // a GET; an entry without queryParams would look unfinished to readers
		values, properties := map[string]any{}, map[string]any{}
		for _, parameter := range described.Parameters {
			values[parameter.Value.Name] = parameter.Value.Example
			properties[parameter.Value.Name] = jsonSchema(parameter.Value.Schema.Value)
		}
		input["queryParams"] = values
		inputSchema["queryParams"] = map[string]any{"type": "object", "properties": properties}
	}
	entry := map[string]any{
		"info": map[string]any{
			"input": input,
			"output": map[string]any{"type": "json",
				"example": brief(described.Responses.Value("200").Value.Content["application/json"].Example)},
		},
		"schema": map[string]any{
			"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "required": []string{"input"},
			"properties": map[string]any{
				"input":  map[string]any{"type": "object", "properties": inputSchema, "required": required},
				"output": map[string]any{"type": "object", "properties": map[string]any{"example": map[string]any{"type": "object"}}},
			},
		},
	}
	raw, err := json.Marshal(entry)
	if err != nil {
		return nil, fmt.Errorf("catalogue entry: %w", err)
	}
	return raw, nil
}

// maxExample is how long an example with entries in its lists may be, in bytes.
const maxExample = 500

// brief returns an example whose lists have one entry, or none if it would be too long.
func brief(example any) any {
	short := cut(example, 1)
	if raw, err := json.Marshal(short); err == nil && len(raw) <= maxExample {
		return short
	}
	return cut(example, 0)
}

// cut returns an example whose lists have at most so many entries.
func cut(example any, entries int) any {
	switch value := example.(type) {
	case []any:
		short := []any{}
		for _, entry := range value[:min(entries, len(value))] {
			short = append(short, cut(entry, entries))
		}
		return short
	case map[string]any:
		short := map[string]any{}
		for name, member := range value {
			short[name] = cut(member, entries)
		}
		return short
	}
	return example
}

// jsonSchema converts a schema of the contract to JSON Schema 2020-12 with references inlined. It has the names and types, and leaves the
// limits and patterns of values to the contract.
func jsonSchema(schema *openapi3.Schema) map[string]any {
	out := map[string]any{"type": schema.Type.Slice()[0]}
	if len(schema.Enum) > 0 {
		out["enum"] = schema.Enum
	}
	if len(schema.Required) > 0 {
		out["required"] = schema.Required
	}
	if schema.Items != nil {
		out["items"] = jsonSchema(schema.Items.Value)
	}
	if schema.Type.Is("object") {
		properties := map[string]any{}
		for name, property := range schema.Properties {
			properties[name] = jsonSchema(property.Value)
		}
		out["properties"] = properties
	}
	return out
}
