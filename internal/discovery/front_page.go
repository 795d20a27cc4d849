package discovery

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/parley-chat/parley/x402"
)

var (
	//go:embed front_page.html
	frontPageHTML string
	//go:embed front_page.css
	frontPageCSS string

	frontPageTemplate = template.Must(template.New("front page").Funcs(template.FuncMap{"trimmed": trimmed}).Parse(frontPageHTML))
)

// frontPage is what GET / says about the service, in this order: as JSON, as text and as a page for browsers.
type frontPage struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Version     string   `json:"version"`
	LLMs        string   `json:"llms_txt"`
	Skill       string   `json:"skill"`
	SDKs        string   `json:"sdks"`
	Contract    string   `json:"contract"`
	AgentCard   string   `json:"agent_card"`
	Health      string   `json:"health"`
	Payment     payments `json:"payment"`
}

// payments say how calls are paid. Prices are in USD.
type payments struct {
	Protocol string   `json:"protocol"`
	Network  string   `json:"network"`
	Asset    string   `json:"asset"`
	Schemes  []string `json:"schemes"`
	Lowest   string   `json:"lowest_price"`
	Highest  string   `json:"highest_price"`
}

// newFrontPage makes the document of GET /. It has the links that an agent needs to start from the server's address alone.
func newFrontPage(document *openapi3.T, config Config, operations []Operation, schemes []string) (Document, error) {
	page := frontPage{
		Name: document.Info.Title, Description: summary, Version: document.Info.Version,
		LLMs: config.BaseURL + "/llms.txt", Skill: config.BaseURL + "/skill.md", SDKs: config.BaseURL + "/sdk.md",
		Contract: config.BaseURL + "/openapi.json", AgentCard: config.BaseURL + "/.well-known/agent-card.json",
		Health: config.BaseURL + "/health", Payment: paymentsOf(operations, schemes),
	}
	var asJSON bytes.Buffer
	encoder := json.NewEncoder(&asJSON)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(page); err != nil {
		return Document{}, fmt.Errorf("write the front page: %w", err)
	}
	var asHTML bytes.Buffer
	err := frontPageTemplate.Execute(&asHTML, struct {
		frontPage
		BaseURL string
		Icon    template.URL
		Style   template.CSS
	}{page, config.BaseURL, IconURL, template.CSS(frontPageCSS)})
	if err != nil {
		return Document{}, fmt.Errorf("write the front page: %w", err)
	}
	style := sha256.Sum256([]byte(frontPageCSS))
	front := newDocument("/", "application/json", asJSON.Bytes())
	front.add("text/plain; charset=utf-8", page.text(), nil)
	front.add("text/html; charset=utf-8", asHTML.Bytes(), map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(style[:]) +
			"'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		"Referrer-Policy": "no-referrer",
	})
	return front, nil
}

func paymentsOf(operations []Operation, schemes []string) payments {
	found := payments{Protocol: "x402", Schemes: schemes}
	var lowest, highest uint64
	for _, operation := range operations {
		if operation.Price == 0 {
			continue
		}
		if lowest == 0 || operation.Price < lowest {
			lowest = operation.Price
		}
		highest = max(highest, operation.Price)
		for _, offer := range operation.Requirements {
			found.Network, found.Asset = offer.Network, offer.Asset
		}
	}
	found.Lowest, found.Highest = x402.FormatUSD(lowest), x402.FormatUSD(highest)
	return found
}

// text is the front page for programs that ask for text.
func (p frontPage) text() []byte {
	return fmt.Appendf(nil, `%s: %s.

%s  every call with its price, for language models
%s  how an agent uses this service, step by step
%s  a bot in TypeScript and one in Python that pay; other languages
%s  the contract (OpenAPI 3.0)
%s  whether the service is up

A call costs %s to %s USD. A call without payment returns 402 with its price.
Schemes: %s. Network: %s.
`, p.Name, p.Description, p.LLMs, p.Skill, p.SDKs, p.Contract, p.Health,
		trimmed(p.Payment.Lowest), trimmed(p.Payment.Highest), strings.Join(p.Payment.Schemes, ", "), p.Payment.Network)
}

// trimmed is a price without zeros at its end: 0.005000 becomes 0.005.
func trimmed(price string) string { return strings.TrimSuffix(strings.TrimRight(price, "0"), ".") }
