package console

import (
	"strings"

	"github.com/alecthomas/kong"
)

// AddHelp sets the help of flags and arguments that have none in their tags, where longer texts do not fit. A key is a name, or a command
// and a name, such as "payments channels state". ${default} stands for the default.
func AddHelp(model *kong.Application, texts map[string]string) {
	_ = kong.Visit(model, func(visited kong.Visitable, next kong.Next) error { // returns no error, because the function does not
		node, ok := visited.(*kong.Node)
		if !ok {
			return next(nil)
		}
		values := node.Positional
		for _, flag := range node.Flags {
			values = append(values[:len(values):len(values)], flag.Value)
		}
		path := strings.TrimPrefix(node.FullPath(), model.Name+" ")
		for _, value := range values {
			if value.Help != "" {
				continue
			}
			text, special := texts[path+" "+value.Name]
			if !special {
				text = texts[value.Name]
			}
			value.Help = strings.ReplaceAll(text, "${default}", value.Default)
		}
		return next(nil)
	})
}
