package settings

import (
	"errors"
	"os"
	"strings"
)

// filePrefix begins the value of a secret that is in a file.
const filePrefix = "file:"

// FileHint ends the help of each secret.
const FileHint = "The value file:PATH names a file with it."

// Secret is the value of a setting that is never shown. It may be in a file: the value file:PATH names it.
type Secret struct {
	Value string
	File  string // that contains the value, if it is in a file
}

// UnmarshalText is part of encoding.TextUnmarshaler. It reads the file. Its error does not contain the secret.
func (s *Secret) UnmarshalText(text []byte) error {
	file, inFile := strings.CutPrefix(string(text), filePrefix)
	if !inFile {
		*s = Secret{Value: string(text)}
		return nil
	}
	content, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		return errors.New("a file that can be read, not one with: " + Cause(err))
	}
	if *s = (Secret{Value: strings.TrimSpace(string(content)), File: file}); s.Value == "" {
		return errors.New("a file that is not empty")
	}
	return nil
}

// String returns the place of the secret, or that it is hidden.
func (s Secret) String() string {
	switch {
	case s.File != "":
		return filePrefix + s.File
	case s.Value != "":
		return hidden
	}
	return ""
}

func isSecret(value any) bool {
	_, ok := value.(Secret)
	return ok
}
