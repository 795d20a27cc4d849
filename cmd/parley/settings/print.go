package settings

import (
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Print writes the settings of the command as YAML, each with the place that it comes from. The output can be used as the
// configuration file. Secrets are hidden, in comments.
func (s *Settings) Print(to io.Writer) error {
	fmt.Fprintln(to, "# The effective settings. A flag overrides the environment, which overrides the file, which overrides the default.")
	for _, flag := range s.command.Selected().Flags {
		if len(flag.Envs) == 0 || IsSettingsFile(flag) {
			continue
		}
		source := map[int]string{
			fromDefault: "default", fromFile: s.FileName, fromEnvironment: flag.Envs[0], fromFlag: "flag --" + flag.Name,
		}[s.source(flag)]
		value := flag.Target.Interface()
		text := Shown(value)
		if secret, ok := value.(Secret); ok && secret.Value != "" && secret.File == "" || HasUser(text) { // a URL with a password is wrong
			fmt.Fprintf(to, "# %s: (hidden)  # %s\n", flag.Name, source)
			continue
		}
		if text == "" {
			fmt.Fprintf(to, "# %s:  # not set\n", flag.Name)
			continue
		}
		encoded, err := encodeSetting(value)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(to, "%s: %s  # %s\n", flag.Name, encoded, source); err != nil {
			return err
		}
	}
	return nil
}

// encodeSetting returns a value as YAML on one line.
func encodeSetting(value any) (string, error) {
	var node yaml.Node
	switch typed := value.(type) {
	case []string:
		if err := node.Encode(typed); err != nil {
			return "", err
		}
		node.Style = yaml.FlowStyle
	case string:
		node.SetString(typed)
		if strings.ContainsAny(typed, "\r\n") {
			node.Style = yaml.DoubleQuotedStyle
		}
	default:
		node = yaml.Node{Kind: yaml.ScalarNode, Value: Shown(value)}
	}
	encoded, err := yaml.Marshal(&node)
	return strings.TrimSpace(string(encoded)), err
}
