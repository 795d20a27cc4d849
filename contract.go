// Package parley holds the texts that the programs of this module publish: the contract and the agent skill.
package parley

import _ "embed"

// Contract is openapi.yaml as it was authored: OpenAPI 3.0.3, YAML.
//
//go:embed openapi.yaml
var Contract []byte

// Skill is the agent skill, Markdown with front matter (agentskills.io). It calls the server https://parley.example.
//
//go:embed skills/parley/SKILL.md
var Skill string
