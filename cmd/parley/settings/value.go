package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// settingMapper reads the value of a setting. An empty value means that the setting is not given. A wrong value is recorded, and the
// default taken, so that all wrong settings are reported at once.
type settingMapper struct {
	kong.Mapper

	invalid map[*kong.Value]string
	decided bool // by a flag or the file
}

// Decode is part of kong.Mapper. Kong calls it for a flag, then for the environment or the default, then for the file.
func (m *settingMapper) Decode(command *kong.DecodeContext, target reflect.Value) error {
	value, given := command.Value, command.Scan.Peek()
	if given.Value == "" {
		command.Scan.Pop()
		return m.byDefault(command, target)
	}
	err := m.Mapper.Decode(command, target)
	if given.IsEOL() && err != nil { // a flag without its value
		return err
	}
	if target.Addr().Interface() != value.Target.Addr().Interface() {
		m.decided = true
		delete(m.invalid, value)
	} else if m.decided {
		return nil
	}
	if err == nil && (value.Enum == "" || slices.Contains(value.EnumSlice(), fmt.Sprint(target.Interface()))) {
		return nil
	}
	m.invalid[value] = Invalid(value.Name, given.Value, remedy(value, err))[0]
	return m.byDefault(command, target)
}

func (m *settingMapper) byDefault(command *kong.DecodeContext, target reflect.Value) error {
	target.SetZero()
	if !command.Value.HasDefault || command.Value.Default == "" {
		return nil
	}
	given := kong.Token{Type: kong.FlagValueToken, Value: command.Value.Default}
	return m.Mapper.Decode(command.WithScanner(kong.ScanFromTokens(given)), target)
}

// remedy says which values a setting takes.
func remedy(value *kong.Value, err error) string {
	switch kind := value.Target.Kind(); {
	case isSecret(value.Target.Interface()):
		return Cause(err)
	case value.Enum != "":
		return "one of " + strings.Join(value.EnumSlice(), ", ")
	case value.Target.Type() == reflect.TypeFor[time.Duration]():
		return "a duration such as 30s, 10m or 24h"
	case kind == reflect.Bool:
		return "true or false"
	case kind == reflect.Float32 || kind == reflect.Float64:
		return "a number"
	case kind >= reflect.Int && kind <= reflect.Uint64:
		return "a whole number"
	}
	return "another value: " + Cause(err)
}

// Cause returns the reason of an error without the name of the file.
func Cause(err error) string {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	return fmt.Sprint(err)
}

// Shown returns the value of a setting as the operator writes it.
func Shown(value any) string {
	switch value := value.(type) {
	case []string:
		return strings.Join(value, ",")
	case time.Duration:
		text := value.String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	case string:
		if quoted := strconv.Quote(value); strings.Contains(quoted, `\`) || strings.TrimSpace(value) != value {
			return quoted
		}
		return value
	}
	return fmt.Sprint(value)
}
