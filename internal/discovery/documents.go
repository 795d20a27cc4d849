package discovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	parley "github.com/parley-chat/parley"
)

// agentDocuments makes the documents for agents and crawlers from the contract.
func agentDocuments(document *openapi3.T, config Config, operations []Operation) ([]Document, error) {
	ordered := inOrder(document, operations)
	schemes := schemesOf(operations)
	card, err := json.Marshal(agentCard(document, config, schemes))
	if err != nil {
		return nil, fmt.Errorf("write the agent card: %w", err)
	}
	skill := []byte(strings.ReplaceAll(parley.Skill, "https://parley.example", config.BaseURL))
	sdks := []byte(strings.NewReplacer("](../skills/parley/", "]("+config.BaseURL+"/",
		"](../", "](https://github.com/parley-chat/parley/blob/main/", localServer, config.BaseURL).Replace(parley.SDKs))
	index, err := skillIndex(config, skill)
	if err != nil {
		return nil, err
	}
	front, err := newFrontPage(document, config, ordered, schemes)
	if err != nil {
		return nil, err
	}
	return []Document{
		front,
		newDocument("/llms.txt", "text/plain; charset=utf-8", llmsText(document, config, ordered, schemes)),
		newDocument("/skill.md", "text/markdown; charset=utf-8", skill),
		newDocument("/sdk.md", "text/markdown; charset=utf-8", sdks),
		newDocument("/parley.mjs", "text/javascript; charset=utf-8", parley.SkillJavaScript),
		newDocument("/parley.py", "text/x-python; charset=utf-8", parley.SkillPython),
		newDocument("/.well-known/agent-skills/index.json", "application/json", index),
		newDocument("/.well-known/agent-card.json", "application/json", card),
		newDocument("/favicon.svg", "image/svg+xml", []byte(icon)),
	}, nil
}

// localServer is the server in the examples of the guide to SDKs.
const localServer = "http://127.0.0.1:8402"

// icon is shown by service directories and browsers.
const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">` +
	`<path fill="#0052ff" d="M3 2h10a2 2 0 0 1 2 2v6a2 2 0 0 1-2 2H7l-4 3v-3a2 2 0 0 1-2-2V4a2 2 0 0 1 2-2z"/></svg>`

// IconURL is the icon as a URL for pages that load nothing.
var IconURL = template.URL("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString([]byte(icon)))

// skillIndex makes the index of agentskills.io discovery, with which a skills client installs the skill from the URL of
// the server. The digest must match the bytes of the skill.
func skillIndex(config Config, skill []byte) ([]byte, error) {
	var about struct{ Name, Description string }
	frontMatter, _, _ := bytes.Cut(bytes.TrimPrefix(skill, []byte("---\n")), []byte("\n---\n"))
	if err := yaml.Unmarshal(frontMatter, &about); err != nil {
		return nil, fmt.Errorf("read the skill's front matter: %w", err)
	}
	index, err := json.Marshal(map[string]any{
		"$schema": "https://schemas.agentskills.io/discovery/0.2.0/schema.json",
		"skills": []map[string]string{{
			"name": about.Name, "type": "skill-md", "description": about.Description, "url": config.BaseURL + "/skill.md",
			"digest": fmt.Sprintf("sha256:%x", sha256.Sum256(skill)),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("write the index of skills: %w", err)
	}
	return index, nil
}

// inOrder sorts the operations by the order of their tags in the contract, then by path.
func inOrder(document *openapi3.T, operations []Operation) []Operation {
	position := map[string]int{}
	for i, tag := range document.Tags {
		position[tag.Name] = i
	}
	ordered := slices.Clone(operations)
	slices.SortFunc(ordered, func(a, b Operation) int {
		if order := position[a.tag()] - position[b.tag()]; order != 0 {
			return order
		}
		return strings.Compare(a.Path, b.Path)
	})
	return ordered
}

func (o Operation) tag() string { return o.Described.Tags[0] }

// summary describes the service in one line.
const summary = "Messaging for AI agents over HTTP and JSON, paid per call in USDC with x402"

// schemesOf returns the payment schemes that the server offers, the preferred one first.
func schemesOf(operations []Operation) []string {
	var schemes []string
	for _, operation := range operations {
		for _, offer := range operation.Requirements {
			if !slices.Contains(schemes, offer.Scheme) {
				schemes = append(schemes, offer.Scheme)
			}
		}
	}
	return schemes
}

// agentCard makes an A2A 1.0 agent card that also has the fields of version 0.3. Parley does not speak A2A: the only
// interface is its own binding, named by a URI as the specification requires.
func agentCard(document *openapi3.T, config Config, schemes []string) map[string]any {
	tags := append([]string{"messaging", "x402"}, schemes...)
	skills := []map[string]any{}
	for _, tag := range document.Tags {
		id := strings.ReplaceAll(strings.ToLower(tag.Name), " ", "-")
		skills = append(skills, map[string]any{"id": id, "name": tag.Name, "description": tag.Description, "tags": tags})
	}
	return map[string]any{
		"name": document.Info.Title,
		"description": fmt.Sprintf("%s (payment schemes: %s). %s/skill.md describes the command line parley and its MCP server.",
			summary, strings.Join(schemes, ", "), config.BaseURL),
		"version": document.Info.Version,
		"supportedInterfaces": []map[string]any{{
			"url": config.BaseURL, "protocolBinding": "https://github.com/parley-chat/parley/bindings/openapi-x402", "protocolVersion": "1.0",
		}},
		"capabilities":       map[string]bool{"streaming": false, "pushNotifications": false, "stateTransitionHistory": false},
		"defaultInputModes":  []string{"application/json"},
		"defaultOutputModes": []string{"application/json"},
		"documentationUrl":   config.BaseURL + "/openapi.json",
		"securitySchemes": map[string]any{"apiKey": map[string]any{
			"apiKeySecurityScheme": map[string]string{"location": "header", "name": "X-API-KEY"},
		}},
		"skills": skills,
	}
}
