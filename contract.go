// Package parley holds the contract, openapi.yaml, for the programs of this module.
package parley

import _ "embed"

// Contract is openapi.yaml as it was authored: OpenAPI 3.0.3, YAML.
//
//go:embed openapi.yaml
var Contract []byte
