package discovery

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"github.com/parley-chat/parley/x402"
)

// contractDocuments makes openapi.yaml and openapi.json. They differ from the file in what generated SDKs and tools need:
//
//   - the operator's servers, and how to pay: scheme, network and amount in each x-payment-info, and what is the same for all operations in
//     that of the document;
//   - the price at the end of each description, because generators drop x-payment-info;
//   - x-known-values in place of the enum of an open enum (x-open-enum), because typed clients fail on a value that they do not
//     know.
func contractDocuments(contract []byte, config Config, operations []Operation) ([]Document, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(contract, &document); err != nil {
		return nil, fmt.Errorf("read the contract: %w", err)
	}
	root := document.Content[0]
	// Comments are for those who edit the file.
	root.Content[0].HeadComment = ""
	if err := replace(root, []map[string]string{{"url": config.BaseURL}}, "servers"); err != nil {
		return nil, err
	}
	var offers []x402.PaymentRequirements // which differ between operations only in their amounts
	for _, operation := range operations {
		if operation.Price == 0 {
			continue
		}
		offers = operation.Requirements
		var protocols []map[string]any
		for _, offer := range offers {
			protocols = append(protocols, map[string]any{"x402": map[string]any{
				"scheme": offer.Scheme, "network": offer.Network, "amount": offer.Amount,
			}})
		}
		path := []string{"paths", operation.Path, strings.ToLower(operation.Method)}
		if err := replace(root, protocols, append(slices.Clone(path), "x-payment-info", "protocols")...); err != nil {
			return nil, err
		}
		description := strings.TrimSpace(operation.Described.Description) + " Costs " + x402.FormatUSD(operation.Price) + " USD."
		if err := replace(root, description, append(path, "description")...); err != nil {
			return nil, err
		}
	}
	var common []map[string]any
	for _, offer := range offers {
		common = append(common, map[string]any{"x402": map[string]any{
			"scheme": offer.Scheme, "network": offer.Network, "asset": offer.Asset, "payTo": offer.PayTo,
			"maxTimeoutSeconds": offer.MaxTimeoutSeconds, "facilitator": config.FacilitatorURL,
		}})
	}
	var payment yaml.Node
	if err := payment.Encode(map[string]any{"x-payment-info": map[string]any{"protocols": common}}); err != nil {
		return nil, fmt.Errorf("write how to pay: %w", err)
	}
	root.Content = append(root.Content, payment.Content...)
	openEnums(root)
	quoteNumbers(root)
	var asYAML bytes.Buffer
	encoder := yaml.NewEncoder(&asYAML)
	encoder.SetIndent(2)
	if err := encoder.Encode(&document); err != nil {
		return nil, fmt.Errorf("write openapi.yaml: %w", err)
	}
	var asJSON bytes.Buffer
	if err := writeJSON(jsontext.NewEncoder(&asJSON, jsontext.EscapeForHTML(true)), root); err != nil {
		return nil, fmt.Errorf("write openapi.json: %w", err)
	}
	return []Document{
		newDocument("/openapi.yaml", "application/yaml", asYAML.Bytes()),
		newDocument("/openapi.json", "application/json", asJSON.Bytes()),
	}, nil
}

// replace sets the value at the path of keys below node.
func replace(node *yaml.Node, value any, keys ...string) error {
	for _, key := range keys {
		found := (*yaml.Node)(nil)
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				found = node.Content[i+1]
			}
		}
		if found == nil {
			return fmt.Errorf("the contract has no %v", keys)
		}
		node = found
	}
	return node.Encode(value)
}

// openEnums turns the enums below a node that may get more values into x-known-values.
func openEnums(node *yaml.Node) {
	for _, child := range node.Content {
		openEnums(child)
	}
	if node.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value != "x-open-enum" {
			continue
		}
		node.Content = slices.Delete(node.Content, i, i+2)
		for j := 0; j+1 < len(node.Content); j += 2 {
			if node.Content[j].Value == "enum" {
				node.Content[j].Value = "x-known-values"
			}
		}
		return
	}
}

// quoteNumbers quotes texts that parsers of YAML 1.1 would take for hexadecimal numbers.
func quoteNumbers(node *yaml.Node) {
	if node.Tag == "!!str" && node.Style == 0 && strings.HasPrefix(node.Value, "0x") {
		node.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range node.Content {
		quoteNumbers(child)
	}
}

// writeJSON writes a YAML node as JSON and keeps the order of the keys, so that a reader of the first lines meets the
// introduction.
func writeJSON(to *jsontext.Encoder, node *yaml.Node) error {
	begin, end := jsontext.BeginObject, jsontext.EndObject
	switch node.Kind {
	case yaml.SequenceNode:
		begin, end = jsontext.BeginArray, jsontext.EndArray
	case yaml.ScalarNode:
		var value any
		if err := node.Decode(&value); err != nil {
			return err
		}
		return json.MarshalEncode(to, value)
	}
	err := to.WriteToken(begin)
	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 {
			err = cmp.Or(err, to.WriteToken(jsontext.String(child.Value)))
		} else {
			err = cmp.Or(err, writeJSON(to, child))
		}
	}
	return cmp.Or(err, to.WriteToken(end))
}
