package mcpserver

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
)

type tool struct {
	name    string
	actions []*agent.Action
}

// heads are the first words of the descriptions of tools that several actions share.
var heads = map[string]string{
	"parley_group":    "Group chats: all members write. All but create need conversation.",
	"parley_channel":  "Channels: the admin writes, subscribers read. All but create need conversation.",
	"parley_status":   "Account, wallet, money spent today, open payments; prices.",
	"parley_contacts": "Known names, and blocking.", "parley_account": "My account.", "parley_wallet": "The wallet.",
}

func toolsOf(set string) (tools []tool) {
	for _, a := range agent.Actions {
		if a.Tool == "" || set == ToolsRead && a.Changes || set != ToolsAll && slices.Contains(rare, a.Tool) {
			continue
		}
		i := slices.IndexFunc(tools, func(t tool) bool { return t.name == a.Tool })
		if i < 0 {
			tools, i = append(tools, tool{name: a.Tool}), len(tools)
		}
		tools[i].actions = append(tools[i].actions, a)
	}
	return tools
}

// action returns the action of a call. Without a name it is the first one.
func (t tool) action(given map[string]any) (*agent.Action, error) {
	name, _ := given["action"].(string)
	delete(given, "action")
	if name == "" && (len(t.actions) == 1 || !t.actions[0].Changes) {
		return t.actions[0], nil
	}
	var verbs []string
	for _, a := range t.actions {
		if a.Verb() == name {
			return a, nil
		}
		verbs = append(verbs, a.Verb())
	}
	return nil, agent.Usagef("action is one of: %s", strings.Join(verbs, ", "))
}

// params returns the parameters that a model can give, each once.
func params(actions []*agent.Action) (all []agent.Param) {
	for _, a := range actions {
		for _, p := range a.Params {
			if !p.Program && !slices.ContainsFunc(all, func(one agent.Param) bool { return one.Name == p.Name }) {
				all = append(all, p)
			}
		}
	}
	return all
}

// describe returns the tool with its schema. Limits are in the descriptions too: some clients show their model only these.
func (t tool) describe() *mcp.Tool {
	properties, required := map[string]any{}, []string{}
	var verbs []string
	free, changes, final := true, false, false
	for _, a := range t.actions {
		verbs = append(verbs, a.Verb())
		free, changes, final = free && a.Price == "free", changes || a.Changes, final || a.Final
	}
	for _, p := range params(t.actions) {
		property := map[string]any{"type": string(p.Type), "description": p.Limited()}
		if p.Type == agent.Number && p.Max > 0 {
			property["minimum"], property["maximum"], property["description"] = p.Min, p.Max, p.Help
		}
		if p.Type == agent.List {
			property["items"] = map[string]any{"type": "string"}
		}
		if p.Enum != nil {
			property["enum"], property["description"] = p.Enum, p.Help
		}
		if p.Default != "" && len(t.actions) == 1 {
			var value any = p.Default
			_ = json.Unmarshal([]byte(p.Default), &value) // a number, or else a text
			property["default"] = value
		}
		properties[p.Name] = property
		if p.Required && len(t.actions) == 1 {
			required = append(required, p.Name)
		}
	}
	description := t.actions[0].Summary + " " + t.actions[0].Cost()
	if head := heads[t.name]; len(t.actions) == 1 && t.actions[0].Verb() == "info" {
		description = head + " " + description
	}
	if len(t.actions) > 1 {
		properties["action"] = map[string]any{"type": "string", "enum": verbs}
		description = heads[t.name] + " USD (* required):" + t.list()
		if t.actions[0].Changes {
			required = append(required, "action")
		}
	}
	schema := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		schema["required"] = required
	}
	var open *bool // true if it is left out
	if free && !changes {
		open = new(false)
	}
	title := strings.ToUpper(t.name[:1]) + strings.ReplaceAll(t.name[1:], "_", " ")
	return &mcp.Tool{Name: t.name, Title: title, Description: strings.TrimSpace(description), InputSchema: schema,
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: free && !changes, DestructiveHint: &final, IdempotentHint: free && !changes,
			OpenWorldHint: open}}
}

// list says of each action what it costs and takes, beside the conversation.
func (t tool) list() (text string) {
	for _, a := range t.actions {
		var names []string
		for _, p := range params([]*agent.Action{a}) {
			if p.Name != "conversation" {
				names = append(names, p.Name+map[bool]string{true: "*"}[p.Required])
			}
		}
		text += fmt.Sprintf(" %s %s", a.Verb(), a.Price)
		if len(names) > 0 {
			text += " (" + strings.Join(names, ", ") + ")"
		}
		text += ";"
	}
	return strings.TrimSuffix(text, ";") + "."
}
