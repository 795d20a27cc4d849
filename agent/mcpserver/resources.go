package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/agent"
)

// The addresses of the resources.
const (
	operationsResource = "parley://operations"
	skillResource      = "parley://skill"
)

// documentedServer is the server's URL in the skill.
const documentedServer = "https://parley.example"

func (s *parleyServer) addResources(server *mcp.Server) {
	for uri, described := range map[string]struct {
		name, description string
		text              func() string
	}{
		operationsResource: {"operations", "All operations of the contract with price, tool and arguments", s.operations},
		skillResource:      {"skill", "How to use Parley, also without this server", s.skill},
	} {
		server.AddResource(&mcp.Resource{URI: uri, Name: described.name, Description: described.description, MIMEType: "text/markdown"},
			func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: "text/markdown", Text: described.text()}}}, nil
			})
	}
}

func (s *parleyServer) skill() string {
	if server := s.agent.Server(); server != "" {
		return strings.ReplaceAll(parley.Skill, documentedServer, server)
	}
	return parley.Skill
}

// operations lists the contract for parley_call.
func (s *parleyServer) operations() string {
	var text strings.Builder
	text.WriteString("# Operations of Parley\n\nAn argument with ? is optional.\n\n")
	for _, o := range s.agent.Prices() {
		fmt.Fprintf(&text, "- **%s** (%s USD, %s): %s. Arguments: %s\n", o.ID, agent.USD(o.Agreed), s.callerOf(o.ID), o.Summary, argumentList(o))
	}
	return text.String()
}

// argumentList returns the arguments of an operation with their types.
func argumentList(o agent.Priced) string {
	var names []string
	for name, property := range o.Arguments.Properties {
		kind := "any"
		if property.Value.Type != nil && len(*property.Value.Type) > 0 {
			kind = (*property.Value.Type)[0]
		}
		optional := "?"
		if slices.Contains(o.Arguments.Required, name) {
			optional = ""
		}
		names = append(names, name+optional+" "+kind)
	}
	if names == nil {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
