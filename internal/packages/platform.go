package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// platform is a system and a processor, with the names that npm and MCP bundles use, and those of Go.
type platform struct {
	OS, CPU      string
	goos, goarch string
}

var platforms = []platform{
	{"linux", "x64", "linux", "amd64"},
	{"linux", "arm64", "linux", "arm64"},
	{"darwin", "x64", "darwin", "amd64"},
	{"darwin", "arm64", "darwin", "arm64"},
	{"win32", "x64", "windows", "amd64"},
	{"win32", "arm64", "windows", "arm64"},
}

// Name is that of the platform's files and packages for agents.
func (p platform) Name() string { return p.OS + "-" + p.CPU }

// serverName is the name of the platform in files for operators.
func (p platform) serverName() string { return p.goos + "-" + p.goarch }

// hasServer reports whether the server can be built for the platform.
func (p platform) hasServer() bool { return p.goos != "windows" }

// Suffix is the end of a program's file name.
func (p platform) Suffix() string {
	if p.OS == "win32" {
		return ".exe"
	}
	return ""
}

func (p platform) isHost() bool { return p.goos == runtime.GOOS && p.goarch == runtime.GOARCH }

const buildInfo = "github.com/parley-chat/parley/internal/buildinfo"

// build builds the program of a platform into a file, without cgo: it is statically linked on Linux. Of Git it gets only what is given to
// the linker: what Go records by itself depends on how much of the history a clone has. tags are build tags; noserver leaves out the
// server, halves the size, and needs no database driver.
func (r *release) build(ctx context.Context, p platform, tags, output string) error {
	linked := fmt.Sprintf("-ldflags=-s -w -buildid= -X %[1]s.commit=%[2]s -X %[1]s.date=%[3]s", buildInfo, r.commit, r.date())
	build := exec.CommandContext(ctx, "go", "build", "-tags="+tags, "-trimpath", "-buildvcs=false", linked, "-o", output,
		"github.com/parley-chat/parley/cmd/parley")
	build.Env = append(goEnvironment(), "GOOS="+p.goos, "GOARCH="+p.goarch)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build parley for %s: %w", p.Name(), err)
	}
	return nil
}

// goEnvironment keeps the settings of Go on this machine out of the result.
func goEnvironment() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOAMD64=v1", "GOARM64=v8.0")
}

// chosen returns the platforms with the names, "all", or "host".
func chosen(names string) ([]platform, error) {
	if names == "all" {
		return platforms, nil
	}
	var found []platform
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(platforms, func(p platform) bool { return p.Name() == name || name == "host" && p.isHost() })
		if i < 0 {
			return nil, fmt.Errorf("there is no platform %q; name some of the list in internal/packages/platform.go, all, or host", name)
		}
		found = append(found, platforms[i])
	}
	return found, nil
}
