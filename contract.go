// Package parley embeds the texts that the server publishes: the contract and the agent skill.
package parley

import _ "embed"

// Contract is openapi.yaml (OpenAPI 3.0.3, YAML).
//
//go:embed openapi.yaml
var Contract []byte

// Skill is the agent skill: Markdown with front matter (agentskills.io). It names the server https://parley.example.
//
//go:embed skills/parley/SKILL.md
var Skill string
