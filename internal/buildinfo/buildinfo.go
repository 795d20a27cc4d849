// Package buildinfo says which commit the program was built from.
package buildinfo

import (
	"cmp"
	"runtime/debug"
)

// commit and date are set by builds without version control information (go build -buildvcs=false), so that packages have the same
// bytes wherever they are built: -ldflags "-X github.com/parley-chat/parley/internal/buildinfo.commit=…".
var commit, date string

// Info is what is known about the build. Unknown fields are empty.
type Info struct {
	Commit string // of git
	Date   string // of the commit, RFC 3339
	Go     string // version of Go
}

// Read returns what is known about the build of this program.
func Read() Info {
	info := Info{Commit: commit, Date: date}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	info.Go = build.GoVersion
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			info.Commit = cmp.Or(info.Commit, setting.Value)
		case "vcs.time":
			info.Date = cmp.Or(info.Date, setting.Value)
		}
	}
	return info
}
