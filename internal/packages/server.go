package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// packServers makes what operators install: for each system an archive and an SBOM; for Linux also .deb, .rpm and the image.
func (r *release) packServers(ctx context.Context, chosen []platform) (err error) {
	var images []imageOf
	for _, p := range chosen {
		if !p.hasServer() {
			continue
		}
		program, err := r.packServer(ctx, p)
		if err != nil {
			return err
		}
		if p.goos == "linux" {
			images = append(images, imageOf{p, program})
		}
	}
	if images == nil {
		return nil
	}
	archive, err := r.image(images)
	if err != nil {
		return fmt.Errorf("build the image: %w", err)
	}
	_, err = r.write("parley-server-"+r.Version+"-image.tar", archive)
	return err
}

// packServer builds the program of a platform with the server, makes its packages, and returns it.
func (r *release) packServer(ctx context.Context, p platform) (program []byte, err error) {
	built := filepath.Join(r.temporary, "parley-"+p.serverName())
	if err := r.build(ctx, p, "", built); err != nil {
		return nil, err
	}
	if program, err = os.ReadFile(built); err != nil {
		return nil, err
	}
	name := "parley-server-" + r.Version + "-" + p.serverName()
	list, err := r.sbom(built, name)
	if err != nil {
		return nil, err
	}
	if _, err := r.write(name+".cdx.json", list); err != nil {
		return nil, err
	}
	entries, err := r.archived(program)
	if err != nil {
		return nil, err
	}
	packed, err := tgz(r.time, name, entries)
	if err != nil {
		return nil, err
	}
	if _, err := r.write(name+".tar.gz", packed); err != nil {
		return nil, err
	}
	if p.goos == "linux" {
		err = r.packLinux(p, built)
	}
	return program, err
}

// archived returns the files in an archive: the program, licences, documents, files for operators and completion.
func (r *release) archived(program []byte) ([]entry, error) {
	entries := []entry{{"LICENSE", r.license, false}, {"THIRD_PARTY_LICENSES", r.thirdParty, false}, {"parley", program, true}}
	for _, pattern := range []string{"README.md", "CHANGELOG.md", "docs/*.*", "deploy/*.*", "deploy/Caddyfile", "deploy/kubernetes/*",
		"deploy/monitoring/rules.yaml", "deploy/monitoring/dashboard.json"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		if found == nil {
			return nil, fmt.Errorf("there is no %s; run this in the root of the repository", pattern)
		}
		for _, name := range found {
			content, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry{filepath.ToSlash(name), content, false})
		}
	}
	completion, err := read(files+"completion", "completion")
	if err != nil {
		return nil, err
	}
	entries = append(entries, completion...)
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}
