package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	parley "github.com/parley-chat/parley"
)

// Man is the command that writes the manual pages of the packages: one of the program, and one of each command.
type Man struct {
	Folder string `arg:"" help:"A folder that exists."`
}

// Run writes the pages. They have no date, so that the same program gives the same bytes.
func (c *Man) Run(ctx *kong.Context, topics Topics) error {
	for _, node := range append([]*kong.Node{ctx.Model.Node}, ctx.Model.Children...) {
		if node.Hidden {
			continue
		}
		name := filepath.Join(c.Folder, manName(node)+".1")
		if err := os.WriteFile(name, []byte(manPage(node, topics)), 0o644); err != nil { //nolint:gosec // for everybody
			return err
		}
	}
	return nil
}

// manName returns the name of a page: parley, or parley-send.
func manName(node *kong.Node) string {
	if node.Parent == nil {
		return node.Name
	}
	return manName(node.Parent) + "-" + node.Name
}

// manPage returns the manual page of a command in the language of man(7). The topics are in the page of the program.
func manPage(node *kong.Node, topics Topics) string {
	var page strings.Builder
	name := manName(node)
	fmt.Fprintf(&page, ".TH %s 1 \"\" \"parley %s\" \"Parley\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n",
		roff(strings.ToUpper(name)), parley.Version(), roff(name), roff(strings.TrimSuffix(node.Help, ".")))
	manCommand(&page, node, ".SH DESCRIPTION\n", ".SH OPTIONS\n")
	if node.Parent == nil {
		page.WriteString(".SH COMMANDS\n")
		for _, child := range node.Children {
			if !child.Hidden {
				manEntry(&page, name+"-"+child.Name+"(1)", child.Help)
			}
		}
		for _, topic := range topics {
			page.WriteString(".SH " + topic.Section + "\n")
			for _, entry := range topic.Entries {
				manEntry(&page, entry[0], entry[1])
			}
		}
		return page.String()
	}
	for _, leaf := range node.Leaves(true) {
		fmt.Fprintf(&page, ".SH %s\n%s\n.PP\n", roff(strings.ToUpper(CommandName(leaf))), roff(leaf.Help))
		manCommand(&page, leaf, ".PP\n", "")
	}
	page.WriteString(".SH SEE ALSO\n.BR parley (1)\n")
	return page.String()
}

// manCommand writes how a command is called, its description, and its arguments and flags.
func manCommand(page *strings.Builder, node *kong.Node, description, options string) {
	fmt.Fprintf(page, ".B parley\n%s\n", roff(node.Summary()))
	if node.Detail != "" {
		page.WriteString(description)
	}
	for i, paragraph := range strings.Split(node.Detail, "\n\n") {
		if i > 0 {
			page.WriteString(".PP\n")
		}
		code := false
		for line := range strings.SplitSeq(paragraph, "\n") {
			if indented := strings.HasPrefix(line, "  "); indented != code {
				page.WriteString(map[bool]string{true: ".RS\n.nf\n", false: ".fi\n.RE\n"}[indented])
				code = indented
			}
			if line != "" {
				page.WriteString(roff(strings.TrimSpace(line)) + "\n")
			}
		}
		if code {
			page.WriteString(".fi\n.RE\n")
		}
	}
	if len(node.Positional)+len(node.Flags) > 0 {
		page.WriteString(options)
	}
	for _, argument := range node.Positional {
		manEntry(page, argument.Summary(), kong.DefaultHelpValueFormatter(argument))
	}
	for _, flag := range node.Flags {
		if !flag.Hidden {
			manEntry(page, flag.String(), kong.DefaultHelpValueFormatter(flag.Value))
		}
	}
}

func manEntry(page *strings.Builder, name, help string) {
	fmt.Fprintf(page, ".TP\n.B %s\n%s\n", roff(name), roff(help))
}

// typewriter are characters that roff would print as others.
var typewriter = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`)

// roff returns text that means itself, on one line.
func roff(text string) string {
	text = typewriter.Replace(strings.Join(strings.Fields(text), " "))
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
