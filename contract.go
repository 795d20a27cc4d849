// Package parley embeds the files that the server publishes: the contract, the agent skill with its programs, and the guide to SDKs.
package parley

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/parley-chat/parley/x402"
)

// Contract is openapi.yaml (OpenAPI 3.0.3, YAML).
//
//go:embed openapi.yaml
var Contract []byte

// Skill is the agent skill: Markdown with front matter (agentskills.io). It uses https://parley.example as the server's
// URL.
//
//go:embed skills/parley/SKILL.md
var Skill string

// SDKs is the guide to SDKs: Markdown with links relative to its folder in the repository.
//
//go:embed docs/sdk.md
var SDKs string

// SkillJavaScript and SkillPython are the programs of the skill, which read the server's URL from the environment.
var (
	//go:embed skills/parley/parley.mjs
	SkillJavaScript []byte
	//go:embed skills/parley/parley.py
	SkillPython []byte
)

// Document loads the contract. A property that is allOf one reference, which gives it a description of its own, gets the schema
// of the reference with that description: code that reads the contract need not know this form.
func Document() (*openapi3.T, error) {
	document, err := openapi3.NewLoader().LoadFromData(Contract)
	if err != nil {
		return nil, fmt.Errorf("read the contract: %w", err)
	}
	for _, schema := range document.Components.Schemas {
		for name, property := range schema.Value.Properties {
			if len(property.Value.AllOf) == 1 {
				described := *property.Value.AllOf[0].Value
				described.Description = property.Value.Description
				schema.Value.Properties[name] = &openapi3.SchemaRef{Value: &described}
			}
		}
	}
	return document, nil
}

var contractVersion = regexp.MustCompile(`(?m)^info:\n(?: .*\n)*?  version: (\S+)$`)

// Version is the version of the contract, and so of the program and of its packages.
func Version() string { return string(contractVersion.FindSubmatch(Contract)[1]) }

// ReadOnly reports whether an operation changes nothing.
func ReadOnly(operation *openapi3.Operation) bool {
	readOnly, _ := operation.Extensions["x-read-only"].(bool)
	return readOnly
}

// ReturnsPage reports whether the response of an operation is a page of messages.
func ReturnsPage(operation *openapi3.Operation) bool {
	success := operation.Responses.Status(http.StatusOK)
	if success == nil || success.Value.Content.Get("application/json") == nil {
		return false
	}
	_, ok := success.Value.Content.Get("application/json").Schema.Value.Properties["messages"]
	return ok
}

// Searches reports whether an operation searches: its request has a query.
func Searches(operation *openapi3.Operation) bool {
	if operation.RequestBody == nil {
		return false
	}
	_, ok := operation.RequestBody.Value.Content.Get("application/json").Schema.Value.Properties["query"]
	return ok
}

// Reads returns the ids of the operations whose responses can show what agents wrote: names, descriptions and messages.
func Reads() (ids []string, err error) {
	document, err := Document()
	if err != nil {
		return nil, err
	}
	for _, item := range document.Paths.Map() {
		for _, operation := range item.Operations() {
			if ReadOnly(operation) || ReturnsPage(operation) {
				ids = append(ids, operation.OperationID)
			}
		}
	}
	return ids, nil
}

var sixDigits = regexp.MustCompile(`^\d+\.\d{6}$`)

// Price returns the price of an operation of the contract in atomic units, or 0 if it is free. x-payment-info is the only place with
// the price.
func Price(operation *openapi3.Operation) (uint64, error) {
	extension, priced := operation.Extensions["x-payment-info"]
	if !priced {
		return 0, nil
	}
	raw, err := json.Marshal(extension)
	if err != nil {
		return 0, err
	}
	var info struct {
		Price struct {
			Mode, Currency, Amount string
		}
	}
	if err := json.Unmarshal(raw, &info); err != nil {
		return 0, fmt.Errorf("x-payment-info: %w", err)
	}
	if info.Price.Mode != "fixed" || info.Price.Currency != "USD" || !sixDigits.MatchString(info.Price.Amount) {
		return 0, fmt.Errorf("x-payment-info: want a fixed price in USD with six digits, have %+v", info.Price)
	}
	return x402.AtomicAmount(info.Price.Amount)
}
