package discovery

import (
	"encoding/json"
	"fmt"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json/jsontext"
)

// BazaarEntry returns the catalogue entry of an operation (x402 extension "bazaar"): an example call and its JSON
// Schema, from the contract. Facilitators list paid operations with it.
func BazaarEntry(described *openapi3.Operation, method string, needsKey bool) (jsontext.Value, error) {
	input := map[string]any{"type": "http", "method": method}
	inputSchema := map[string]any{
		"type":   map[string]any{"type": "string", "const": "http"},
		"method": map[string]any{"type": "string", "enum": []string{method}},
	}
	required := []string{"type", "method"}
	if needsKey {
		input["headers"] = map[string]any{"X-API-KEY": "the API key of your account"}
		inputSchema["headers"] = map[string]any{
			"type": "object", "properties": map[string]any{"X-API-KEY": map[string]any{"type": "string"}}, "required": []string{"X-API-KEY"},
		}
		required = append(required, "headers")
	}
	switch {
	case described.RequestBody != nil:
		media := described.RequestBody.Value.Content["application/json"]
		input["bodyType"], input["body"] = "json", media.Example
		inputSchema["bodyType"] = map[string]any{"type": "string", "enum": []string{"json"}}
		inputSchema["body"] = jsonSchema(media.Schema.Value)
		required = append(required, "bodyType", "body")
	default: // a GET; an entry without queryParams would look unfinished to readers
		values, properties := map[string]any{}, map[string]any{}
		for _, parameter := range described.Parameters {
			values[parameter.Value.Name] = parameter.Value.Example
			properties[parameter.Value.Name] = jsonSchema(parameter.Value.Schema.Value)
		}
		input["queryParams"] = values
		inputSchema["queryParams"] = map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	}
	entry := map[string]any{
		"info": map[string]any{
			"input":  input,
			"output": map[string]any{"type": "json", "example": described.Responses.Value("200").Value.Content["application/json"].Example},
		},
		"schema": map[string]any{
			"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "required": []string{"input"},
			"properties": map[string]any{
				"input": map[string]any{"type": "object", "properties": inputSchema, "required": required, "additionalProperties": false},
				"output": map[string]any{"type": "object", "required": []string{"type"}, "properties": map[string]any{
					"type": map[string]any{"type": "string"}, "example": map[string]any{"type": "object"},
				}},
			},
		},
	}
	raw, err := json.Marshal(entry)
	if err != nil {
		return nil, fmt.Errorf("catalogue entry: %w", err)
	}
	return raw, nil
}

// jsonSchema converts a schema of the contract to JSON Schema 2020-12 with references inlined. It leaves descriptions
// out, because the entry travels in a header.
func jsonSchema(schema *openapi3.Schema) map[string]any {
	out := map[string]any{"type": schema.Type.Slice()[0]}
	set := func(name string, value any, present bool) {
		if present {
			out[name] = value
		}
	}
	set("pattern", schema.Pattern, schema.Pattern != "")
	set("minLength", schema.MinLength, schema.MinLength > 0)
	set("maxLength", schema.MaxLength, schema.MaxLength != nil)
	set("minimum", schema.Min, schema.Min != nil)
	set("maximum", schema.Max, schema.Max != nil)
	set("maxItems", schema.MaxItems, schema.MaxItems != nil)
	set("minProperties", schema.MinProps, schema.MinProps > 0)
	set("default", schema.Default, schema.Default != nil)
	set("enum", schema.Enum, len(schema.Enum) > 0)
	set("required", schema.Required, len(schema.Required) > 0)
	if schema.Items != nil {
		out["items"] = jsonSchema(schema.Items.Value)
	}
	if schema.Type.Is("object") {
		properties := map[string]any{}
		for name, property := range schema.Properties {
			properties[name] = jsonSchema(property.Value)
		}
		out["properties"] = properties
		if closed := schema.AdditionalProperties.Has; closed != nil {
			out["additionalProperties"] = *closed
		}
	}
	return out
}
