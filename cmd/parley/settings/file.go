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

// readSettings reads the configuration file: a mapping of the names of settings. Values stay as they are written, so that 0x… stays an
// address. Without a file name it returns no values.
func readSettings(name string, names []string) (values map[string]yaml.Node, wrong Wrong) {
	if name == "" {
		return nil, nil
	}
	file, err := os.Open(name) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, Invalid("config", name, "a file that can be read, not one with: "+Cause(err))
	}
	defer func() { _ = file.Close() }() // it was only read
	nested := func(node *yaml.Node) bool { return node.Kind != yaml.ScalarNode }
	decoder := yaml.NewDecoder(file)
	if err = decoder.Decode(&values); errors.Is(err, io.EOF) { // only comments
		return nil, nil
	}
	if err == nil && !errors.Is(decoder.Decode(new(yaml.Node)), io.EOF) {
		err = errors.New("more than one document")
	}
	if err != nil {
		return nil, Invalid("config", name, "a YAML file with lines such as payee: 0x…, not one with: "+yamlCause(err))
	}
	for key, value := range values {
		switch {
		case !slices.Contains(names, key):
			wrong = append(wrong, fmt.Sprintf("%s: %s is not a setting; %s", name, key, suggestion(key, names)))
		case nested(&value) && (value.Kind != yaml.SequenceNode || slices.ContainsFunc(value.Content, nested)):
			wrong = append(wrong, fmt.Sprintf("%s:%d: %s is not a simple value; use a text, a number or a list", name, value.Line, key))
		}
	}
	slices.Sort(wrong)
	return values, wrong
}

// yamlCause returns the reason of an error without a value of the file, which errors can quote: YAML takes a value that begins with * for
// an alias.
func yamlCause(err error) string {
	if _, ok := errors.AsType[*yaml.TypeError](err); ok {
		return "no mapping, or a key twice"
	}
	reason := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.Contains(reason, "anchor '") {
		return "an unknown alias: a value that begins with * needs quotes"
	}
	return reason
}
