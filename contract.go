// Package parley embeds the files that the server publishes: the contract and the agent skill.
package parley

import _ "embed"

// Contract is openapi.yaml (OpenAPI 3.0.3, YAML).
//
//go:embed openapi.yaml
var Contract []byte

// Skill is the agent skill: Markdown with front matter (agentskills.io). It uses https://parley.example as the server's
// URL.
//
//go:embed skills/parley/SKILL.md
var Skill string
