package settings

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fileValue is the value of a setting in the file: a text or a list. The text is as written, so that 0x… stays an address.
type fileValue struct {
	text string
	list []string
}

// readSettings reads the configuration file. names has the names of all settings. Without a file name it returns no values.
func readSettings(name string, names []string) (map[string]fileValue, Wrong) {
	values := map[string]fileValue{}
	if name == "" {
		return values, nil
	}
	file, err := os.Open(name) //nolint:gosec // the operator names the file
	if err != nil {
		return values, Invalid("config", name, "a file that can be read, not one with: "+Cause(err))
	}
	defer func() { _ = file.Close() }() // it was only read
	decoder := yaml.NewDecoder(file)
	var document yaml.Node
	err = decoder.Decode(&document)
	if errors.Is(err, io.EOF) { // only comments
		return values, nil
	}
	if err == nil && !errors.Is(decoder.Decode(new(yaml.Node)), io.EOF) {
		err = errors.New("more than one document")
	}
	if err != nil {
		return values, Invalid("config", name, "a YAML file, not one with: "+yamlCause(err))
	}
	reader := settingsReader{name: name, names: names, values: values}
	reader.group("", document.Content[0])
	return values, reader.wrong
}

// yamlCause returns the reason of a syntax error without a value of the file. YAML takes a value that begins with * for an alias, and
// the error quotes it.
func yamlCause(err error) string {
	reason := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.Contains(reason, "anchor '") {
		return "an unknown alias: a value that begins with * needs quotes"
	}
	return reason
}

type settingsReader struct {
	name   string
	names  []string
	values map[string]fileValue
	wrong  Wrong
}

// refuse adds a sentence about a place in the file.
func (r *settingsReader) refuse(at *yaml.Node, format string, values ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf("%s:%d: ", r.name, at.Line)+fmt.Sprintf(format, values...))
}

// group reads a mapping. Its keys follow the prefix.
func (r *settingsReader) group(prefix string, node *yaml.Node) {
	if node.Kind != yaml.MappingNode {
		r.refuse(node, "there is no mapping; use lines such as payee: 0x…")
		return
	}
	for i := 0; i < len(node.Content); i += 2 {
		key, value := prefix+node.Content[i].Value, node.Content[i+1]
		known := slices.Contains(r.names, key)
		_, twice := r.values[key]
		switch {
		case twice:
			r.refuse(node.Content[i], "%s is given twice; remove one", key)
		case value.Kind == yaml.MappingNode && !known:
			r.group(key+"-", value)
		case !known:
			r.refuse(node.Content[i], "%s is not a setting; %s", key, suggestion(key, r.names))
		case value.Kind == yaml.SequenceNode:
			r.list(key, value)
		case value.Kind != yaml.ScalarNode:
			r.refuse(value, "%s is not a simple value; use a text, a number or a list", key)
		case value.Tag != "!!null":
			r.values[key] = fileValue{text: value.Value}
		}
	}
}

func (r *settingsReader) list(key string, node *yaml.Node) {
	list := make([]string, len(node.Content))
	for i, item := range node.Content {
		if item.Kind != yaml.ScalarNode {
			r.refuse(item, "%s has an item that is not a simple value; use a text or a number", key)
			return
		}
		list[i] = item.Value
	}
	r.values[key] = fileValue{list: list}
}
