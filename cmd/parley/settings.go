//go:build !noserver

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// settingsFile is part of every command that reads the settings of a server.
type settingsFile struct {
	Config string `env:"PARLEY_CONFIG" predictor:"file" placeholder:"FILE" help:"YAML file with settings. Its keys are the names of the flags; they may be nested, such as limit: {address-rate: 5}. Flags and the environment override it."`
}

// Where a setting comes from; a higher one overrides a lower one.
const (
	fromDefault = iota
	fromFile
	fromEnvironment
	fromFlag
)

// settings finds the values of settings. A setting is a flag with an environment variable, of a command with settingsFile. Its key
// in the file is the name of the flag. A setting with the tag secret may be in a file of its own: NAME-file has that file's name.
type settings struct {
	parser  *kong.Kong
	command *kong.Context // that runs
	names   []string      // of all settings, sorted
	secrets map[*kong.Flag]*kong.Flag

	file     map[string]fileValue // nil before it is read
	fileName string

	invalid  map[*kong.Value]string // sentences about values of a wrong type
	problems wrongSettings
}

// options returns the options of the parser.
func (s *settings) options() []kong.Option {
	s.secrets, s.invalid = map[*kong.Flag]*kong.Flag{}, map[*kong.Value]string{}
	return []kong.Option{kong.PostBuild(s.prepare), kong.Resolvers(s), kong.Bind(s)}
}

// prepare finds the settings, adds NAME-file for secrets, and lets wrong values be reported together.
func (s *settings) prepare(parser *kong.Kong) error {
	s.parser = parser
	return kong.Visit(parser.Model, func(visited kong.Visitable, next kong.Next) error {
		node, ok := visited.(*kong.Node)
		if !ok || node.Type != kong.CommandNode || !slices.ContainsFunc(node.Flags, isSettingsFile) {
			return next(nil)
		}
		config := node.Flags[slices.IndexFunc(node.Flags, isSettingsFile)]
		for _, flag := range slices.Clone(node.Flags) {
			if len(flag.Envs) == 0 || flag == config {
				continue
			}
			if flag.Tag.Has("secret") {
				file := secretFile(flag, config)
				s.secrets[flag] = file
				node.Flags = slices.Insert(node.Flags, slices.Index(node.Flags, flag)+1, file)
				s.names = append(s.names, file.Name)
			}
			flag.Mapper = &settingMapper{Mapper: flag.Mapper, invalid: s.invalid}
			s.names = append(s.names, flag.Name)
		}
		slices.Sort(s.names)
		s.names = slices.Compact(s.names)
		return next(nil)
	})
}

func isSettingsFile(flag *kong.Flag) bool { return slices.Contains(flag.Envs, "PARLEY_CONFIG") }

// secretFile returns the flag for the name of a file with the secret: a copy of --config, which takes the name of a file too.
func secretFile(secret, config *kong.Flag) *kong.Flag {
	flag, value, tag := *config, *config.Value, *config.Tag
	flag.Value, value.Flag, value.Tag = &value, &flag, &tag
	value.Name = secret.Name + "-file"
	value.Help = fmt.Sprintf("File that contains --%s.", secret.Name)
	value.Target = reflect.ValueOf(new(string)).Elem()
	flag.Envs = []string{secret.Envs[0] + "_FILE"}
	tag.Envs = flag.Envs
	return &flag
}

// Validate is part of kong.Resolver. The file is checked when it is read.
func (s *settings) Validate(*kong.Application) error { return nil }

// Resolve is part of kong.Resolver: it returns the value of a flag in the file, or nil.
func (s *settings) Resolve(command *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	if parent.Command == nil || len(flag.Envs) == 0 || isSettingsFile(flag) || inEnvironment(flag) {
		return nil, nil
	}
	i := slices.IndexFunc(parent.Flags, isSettingsFile)
	if i < 0 {
		return nil, nil
	}
	if s.file == nil {
		s.fileName, _ = command.FlagValue(parent.Flags[i]).(string)
		s.file, s.problems = readSettings(s.fileName, s.names)
	}
	value, ok := s.file[flag.Name]
	switch {
	case !ok:
		return nil, nil
	case flag.IsSlice() && value.list != nil:
		return kong.JoinEscaped(value.list, flag.Tag.Sep), nil
	case value.list != nil:
		s.invalid[flag.Value] = fmt.Sprintf("%s is a list in %s; use one value", settingName(flag.Name), s.fileName)
		return nil, nil
	}
	return value.text, nil
}

func inEnvironment(flag *kong.Flag) bool { return os.Getenv(flag.Envs[0]) != "" }

// source returns where the value of a flag of the command comes from.
func (s *settings) source(flag *kong.Flag) int {
	given := func(path *kong.Path) bool { return path.Flag == flag && !path.Resolved }
	_, inFile := s.file[flag.Name]
	switch {
	case slices.ContainsFunc(s.command.Path, given):
		return fromFlag
	case inEnvironment(flag):
		return fromEnvironment
	case inFile:
		return fromFile
	}
	return fromDefault
}

// reportsSettings is what commands implement that report wrong settings with further ones.
type reportsSettings interface{ reportsSettings() }

// check completes the settings of the command and returns an error about all wrong ones. It leaves the error to commands that
// implement reportsSettings.
func (s *settings) check(command *kong.Context) error {
	s.command = command
	flags := command.Flags()
	if !slices.ContainsFunc(flags, isSettingsFile) {
		return nil
	}
	for _, flag := range flags {
		if text, ok := s.invalid[flag.Value]; ok {
			s.problems = append(s.problems, text)
		}
		if file := s.secrets[flag]; file != nil {
			s.readSecret(flag, file)
		}
	}
	s.problems = append(s.problems, s.unknownVariables(os.Environ())...)
	if _, ok := command.Selected().Target.Addr().Interface().(reportsSettings); ok {
		return nil
	}
	return s.report(nil)
}

// readSecret reads the secret from its file, unless something overrides the file.
func (s *settings) readSecret(secret, file *kong.Flag) {
	name, source := file.Target.String(), s.source(secret)
	if secret.Target.String() == "" {
		source = fromDefault
	}
	if name == "" || source > s.source(file) {
		return
	}
	if source == s.source(file) {
		s.problems = append(s.problems, fmt.Sprintf("%s and %s are both given; use one of them", settingName(secret.Name), settingName(file.Name)))
		return
	}
	content, err := os.ReadFile(name) //nolint:gosec // the operator names the file
	text := strings.TrimSpace(string(content))
	s.problems.check(err == nil, file.Name, name, "a file that can be read, not one with: "+cause(err))
	s.problems.check(err != nil || text != "", file.Name, name, "a file that is not empty")
	secret.Target.SetString(text)
}

// report returns an error about the wrong settings, including those of err, or nil. It names each setting once.
func (s *settings) report(err error) error {
	var further, wrong wrongSettings
	further.add(err)
	named := map[string]bool{}
	for _, text := range append(slices.Clone(s.problems), further...) {
		name, _, _ := strings.Cut(text, " ")
		if named[name] {
			continue
		}
		named[name], named[strings.TrimSuffix(name, "-file")] = true, true
		wrong = append(wrong, text)
	}
	if wrong == nil {
		return nil
	}
	return &usageError{wrong}
}

// wrongSettings are sentences about wrong settings. Each names the setting, its value and the remedy.
type wrongSettings []string

func (w wrongSettings) Error() string {
	if len(w) == 1 {
		return w[0]
	}
	return fmt.Sprintf("%d settings are wrong:\n  %s", len(w), strings.Join(w, "\n  "))
}

// check adds a sentence if a setting is not ok. An empty value is a missing one. Use hidden for secrets.
func (w *wrongSettings) check(ok bool, setting string, value any, remedy string) {
	if !ok {
		is := cmp.Or(shown(value), "missing")
		*w = append(*w, fmt.Sprintf("%s is %s; use %s", settingName(setting), is, remedy))
	}
}

// add adds the sentences of an error, which may be nil or joined from several.
func (w *wrongSettings) add(err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			w.add(err)
		}
		return
	}
	if wrong, ok := errors.AsType[wrongSettings](err); ok {
		*w = append(*w, wrong...)
		return
	}
	*w = append(*w, err.Error())
}

// err returns the sentences as an error, or nil if there are none.
func (w wrongSettings) err() error {
	if w == nil {
		return nil
	}
	return w
}

// settingName returns the names of a setting: --payee (PARLEY_PAYEE).
func settingName(flag string) string { return fmt.Sprintf("--%s (%s)", flag, variable(flag)) }

func variable(flag string) string {
	return "PARLEY_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// hidden replaces a secret in a sentence.
func hidden(secret string) string {
	if secret == "" {
		return ""
	}
	return "(hidden)"
}
