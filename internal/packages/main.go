// Command packages builds what users install (make packages).
//
// For agents: the program without the server for each platform, npm packages, MCP bundles (.mcpb) and the entry of the MCP registry
// (server.json). For operators: archives, .deb and .rpm packages and an OCI image. For both: a list of what each program is made of
// (SBOM), statements on known vulnerabilities (OpenVEX), the licences and SHA256SUMS.
//
// The same commit gives the same bytes: archives get their time from SOURCE_DATE_EPOCH, and the build ignores the machine's settings
// of Go. `npm pack` and `mcpb pack` are not used, because the first depends on the version of Node and the second on the clock.
//
// It runs in the root of the repository. It is a module of its own, because its libraries are not the server's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// version returns the version of the contract, which is that of the programs. It is read from the file: with an import of the server's
// module, each of its dependencies would be one of this module.
func version() (string, error) {
	text, err := os.ReadFile("openapi.yaml")
	if err != nil {
		return "", fmt.Errorf("%w; run this in the root of the repository", err)
	}
	var contract struct{ Info struct{ Version string } }
	err = yaml.Unmarshal(text, &contract)
	return contract.Info.Version, err
}

// modified returns the time that all files in archives get.
func modified() (time.Time, error) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return time.Time{}, errors.New("SOURCE_DATE_EPOCH is not the time of the commit in seconds; run: make packages")
	}
	return time.Unix(seconds, 0).UTC(), nil
}

var commitID = regexp.MustCompile(`^[0-9a-f]{40}(-dirty)?$`)

// newRelease returns a release without packages.
func newRelease(folder, licenses string) (*release, error) {
	r := &release{Platforms: platforms, folder: folder, licenses: licenses, commit: os.Getenv("SOURCE_COMMIT")}
	if !commitID.MatchString(r.commit) {
		return nil, errors.New("SOURCE_COMMIT is not the id of the commit; run: make packages")
	}
	var err error
	if r.Version, err = version(); err != nil {
		return nil, err
	}
	if r.time, err = modified(); err != nil {
		return nil, err
	}
	if r.license, err = os.ReadFile("LICENSE"); err != nil {
		return nil, err
	}
	if r.thirdParty, err = os.ReadFile(licenses); err != nil {
		return nil, fmt.Errorf("%w; run: make licenses", err)
	}
	return r, nil
}

func run(ctx context.Context, names, folder, licenses string) (err error) {
	built, err := chosen(names)
	if err != nil {
		return err
	}
	r, err := newRelease(folder, licenses)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if r.temporary, err = os.MkdirTemp("", "parley-packages-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.temporary)) }()
	for _, p := range built {
		program := "parley-" + p.Name() + p.Suffix()
		if err := r.build(ctx, p, "noserver", filepath.Join(folder, program)); err != nil {
			return err
		}
		if err := r.pack(p, program); err != nil {
			return err
		}
	}
	if err := r.packServers(ctx, built); err != nil {
		return err
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
