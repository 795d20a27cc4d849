// Command packages builds what agents install (make packages): the program for each platform, npm packages, MCP bundles (.mcpb), the
// entry of the MCP registry (server.json), and SHA256SUMS.
//
// The same commit gives the same bytes: archives get their time from SOURCE_DATE_EPOCH, and the build ignores the machine's settings
// of Go. `npm pack` and `mcpb pack` are not used, because the first depends on the version of Node and the second on the clock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	parley "github.com/parley-chat/parley"
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

// Name is that of the platform's files and packages.
func (p platform) Name() string { return p.OS + "-" + p.CPU }

// Suffix is the end of a program's file name.
func (p platform) Suffix() string {
	if p.OS == "win32" {
		return ".exe"
	}
	return ""
}

func (p platform) isHost() bool { return p.goos == runtime.GOOS && p.goarch == runtime.GOARCH }

// build builds the program of a platform into a file. The build tag noserver leaves out the server: it halves the size, and needs no
// database driver.
func (p platform) build(ctx context.Context, output string) error {
	build := exec.CommandContext(ctx, "go", "build", "-tags=noserver", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=",
		"-o", output, "github.com/parley-chat/parley/cmd/parley")
	build.Env = append(os.Environ(), "GOOS="+p.goos, "GOARCH="+p.goarch, "CGO_ENABLED=0",
		"GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOAMD64=v1", "GOARM64=v8.0")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build parley for %s: %w", p.Name(), err)
	}
	return nil
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
			return nil, fmt.Errorf("there is no platform %q; name some of the list in internal/packages/main.go, all, or host", name)
		}
		found = append(found, platforms[i])
	}
	return found, nil
}

// modified returns the time that all files in archives get.
func modified() (time.Time, error) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return time.Time{}, errors.New("SOURCE_DATE_EPOCH is not the time of the commit in seconds; run: make packages")
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func run(ctx context.Context, names, folder, licenses string) error {
	built, err := chosen(names)
	if err != nil {
		return err
	}
	r := &release{Version: parley.Version(), Platforms: platforms, folder: folder}
	if r.time, err = modified(); err != nil {
		return err
	}
	if r.license, err = os.ReadFile("LICENSE"); err != nil {
		return err
	}
	if r.thirdParty, err = os.ReadFile(licenses); err != nil {
		return fmt.Errorf("%w; run: make licenses", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, p := range built {
		program := "parley-" + p.Name() + p.Suffix()
		if err := p.build(ctx, filepath.Join(folder, program)); err != nil {
			return err
		}
		if err := r.pack(p, program); err != nil {
			return err
		}
	}
	return r.finish()
}

func main() {
	names := flag.String("platforms", "all", "platforms to build, comma-separated, for example linux-x64,win32-arm64; all; or host")
	folder := flag.String("o", filepath.Join("bin", "packages"), "folder to build into")
	licenses := flag.String("licenses", filepath.Join("bin", "THIRD_PARTY_LICENSES"), "licences of what parley links (make licenses)")
	flag.Parse()
	if err := run(context.Background(), *names, *folder, *licenses); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}
