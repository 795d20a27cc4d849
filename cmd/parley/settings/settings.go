package settings

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/parley-chat/parley/cmd/parley/console"
)

// File is part of every command that reads the settings of a server.
type File struct {
	Config string `env:"PARLEY_CONFIG" predictor:"file" placeholder:"FILE"`
}

// Settings finds the values of settings. A setting is a flag with an environment variable, of a command with a [File]. Its key in the
// file is the name of the flag.
type Settings struct {
	parser  *kong.Kong
	command *kong.Context // that runs
	names   []string      // of all settings, sorted

	file     map[string]yaml.Node
	read     bool
	FileName string

	invalid  map[*kong.Value]string // sentences about values of a wrong type
	problems Wrong
}

// Options returns the options of the parser.
func (s *Settings) Options() []kong.Option {
	s.invalid = map[*kong.Value]string{}
	return []kong.Option{kong.PostBuild(s.prepare), kong.Resolvers(s), kong.Bind(s)}
}

// prepare finds the settings, adds [FileHint] to the help of secrets, and lets wrong values be reported together.
func (s *Settings) prepare(parser *kong.Kong) error {
	s.parser = parser
	return kong.Visit(parser.Model, func(visited kong.Visitable, next kong.Next) error {
		node, ok := visited.(*kong.Node)
		if !ok || node.Type != kong.CommandNode || !slices.ContainsFunc(node.Flags, IsSettingsFile) {
			return next(nil)
		}
		for _, flag := range node.Flags {
			if len(flag.Envs) == 0 || IsSettingsFile(flag) {
				continue
			}
			if isSecret(flag.Target.Interface()) {
				flag.Help += " " + FileHint
			}
			flag.Mapper = &settingMapper{Mapper: flag.Mapper, invalid: s.invalid}
			s.names = append(s.names, flag.Name)
		}
		slices.Sort(s.names)
		s.names = slices.Compact(s.names)
		return next(nil)
	})
}

func IsSettingsFile(flag *kong.Flag) bool { return slices.Contains(flag.Envs, "PARLEY_CONFIG") }

// Validate is part of kong.Resolver. The file is checked when it is read.
func (s *Settings) Validate(*kong.Application) error { return nil }

// Resolve is part of kong.Resolver: it returns the value of a flag in the file, or nil.
func (s *Settings) Resolve(command *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	if parent.Command == nil || len(flag.Envs) == 0 || IsSettingsFile(flag) || inEnvironment(flag) {
		return nil, nil
	}
	i := slices.IndexFunc(parent.Flags, IsSettingsFile)
	if i < 0 {
		return nil, nil
	}
	if !s.read {
		s.read = true
		s.FileName, _ = command.FlagValue(parent.Flags[i]).(string)
		s.file, s.problems = readSettings(s.FileName, s.names)
	}
	value, ok := s.file[flag.Name]
	switch {
	case !ok || value.Tag == "!!null":
		return nil, nil
	case flag.IsSlice() && value.Kind == yaml.SequenceNode:
		var list []string
		for _, item := range value.Content {
			list = append(list, item.Value)
		}
		return kong.JoinEscaped(list, flag.Tag.Sep), nil
	case value.Kind == yaml.SequenceNode:
		s.invalid[flag.Value] = fmt.Sprintf("%s is a list in %s; use one value", settingName(flag.Name), s.FileName)
		return nil, nil
	}
	return value.Value, nil
}

func inEnvironment(flag *kong.Flag) bool { return os.Getenv(flag.Envs[0]) != "" }

// ReportsSettings is what commands implement that report wrong settings with further ones.
type ReportsSettings interface{ ReportsSettings() }

// Check completes the settings of the command and returns an error about all wrong ones. It leaves the error to commands that
// implement ReportsSettings.
func (s *Settings) Check(command *kong.Context) error {
	s.command = command
	flags := command.Flags()
	if !slices.ContainsFunc(flags, IsSettingsFile) {
		return nil
	}
	for _, flag := range flags {
		if text, ok := s.invalid[flag.Value]; ok {
			s.problems = append(s.problems, text)
		}
	}
	s.problems = append(s.problems, s.UnknownVariables(os.Environ())...)
	if _, ok := command.Selected().Target.Addr().Interface().(ReportsSettings); ok {
		return nil
	}
	return s.Report(nil)
}

// Report returns an error about the wrong settings, including the ones in err, or nil. It names each setting once.
func (s *Settings) Report(err error) error {
	var further, wrong Wrong
	further.Add(err)
	named := map[string]bool{}
	for _, text := range append(slices.Clone(s.problems), further...) {
		name, _, _ := strings.Cut(text, " ")
		if named[name] {
			continue
		}
		named[name] = true
		wrong = append(wrong, text)
	}
	if wrong == nil {
		return nil
	}
	return console.Usage(wrong)
}

// Wrong are sentences about wrong settings. Each names the setting, its value and the remedy.
type Wrong []string

func (w Wrong) Error() string {
	if len(w) == 1 {
		return w[0]
	}
	return fmt.Sprintf("%d settings are wrong:\n  %s", len(w), strings.Join(w, "\n  "))
}

// Check adds a sentence if a setting is not ok. An empty value is a missing one. Use hidden for secrets.
func (w *Wrong) Check(ok bool, setting string, value any, remedy string) {
	if !ok {
		is := cmp.Or(Shown(value), "missing")
		*w = append(*w, fmt.Sprintf("%s is %s; use %s", settingName(setting), is, remedy))
	}
}

// Invalid returns a sentence about a setting whose value is wrong.
func Invalid(setting string, value any, remedy string) (wrong Wrong) {
	wrong.Check(false, setting, value, remedy)
	return wrong
}

// Add adds the sentences of an error, which may be nil or joined from several.
func (w *Wrong) Add(err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			w.Add(err)
		}
		return
	}
	if wrong, ok := errors.AsType[Wrong](err); ok {
		*w = append(*w, wrong...)
		return
	}
	*w = append(*w, err.Error())
}

// Err returns the sentences as an error, or nil if there are none.
func (w Wrong) Err() error {
	if w == nil {
		return nil
	}
	return w
}

// settingName returns the names of a setting: --payee (PARLEY_PAYEE).
func settingName(flag string) string { return fmt.Sprintf("--%s (%s)", flag, Variable(flag)) }

func Variable(flag string) string {
	return "PARLEY_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// hidden stands for a secret.
const hidden = "(hidden)"

// SecretPlaces returns the files that contain secrets of the command.
func (s *Settings) SecretPlaces() (names []string) {
	for _, flag := range s.command.Selected().Flags {
		secret, ok := flag.Target.Interface().(Secret)
		switch {
		case !ok:
		case secret.File != "":
			names = append(names, secret.File)
		case secret.Value != "" && s.file[flag.Name].Value == secret.Value:
			names = append(names, s.FileName)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
