package console

import (
	"cmp"
	"fmt"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/internal/buildinfo"
)

type Version struct{}

// Run prints the version.
func (Version) Run(to Console) error {
	_, err := fmt.Fprintln(to.Out, ProgramVersion())
	return err
}

// ProgramVersion returns the version of the contract, and commit and date of the commit if the build recorded them.
func ProgramVersion() string {
	text := "parley " + parley.Version()
	if build := buildinfo.Read(); build.Commit != "" {
		text += fmt.Sprintf(" (commit %s of %s)", build.Commit, cmp.Or(build.Date, "an unknown date"))
	}
	return text
}
