package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// files has the files of the packages, below the root of the repository. The JSON files are templates.
const files = "internal/packages/files/"

// release is one version of all packages. Templates read the fields with capital letters.
type release struct {
	Version   string
	Platforms []platform
	Platform  platform // whose package is made
	Bundles   []bundle

	temporary string // a folder

	folder, licenses    string // of the packages; of the licences of what parley links
	commit              string // the id of the commit, with "-dirty" if files were changed
	time                time.Time
	license, thirdParty []byte
	sums                []string // lines of SHA256SUMS
}

// bundle is an MCP bundle.
type bundle struct{ File, SHA256 string }

// date is the time of the commit in the form of RFC 3339.
func (r *release) date() string { return r.time.Format(time.RFC3339) }

// write writes a file of the release and returns its hash.
func (r *release) write(name string, content []byte) (string, error) {
	if err := os.WriteFile(filepath.Join(r.folder, name), content, 0o644); err != nil {
		return "", err
	}
	return r.sum(name, content), nil
}

// sum returns the hash of a file, and adds it to SHA256SUMS.
func (r *release) sum(name string, content []byte) string {
	hash := sha256.Sum256(content)
	digits := hex.EncodeToString(hash[:])
	r.sums = append(r.sums, digits+"  "+name+"\n")
	return digits
}

// render executes a template of a JSON file.
func (r *release) render(name string) ([]byte, error) {
	parsed, err := template.ParseFiles(files + name)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, r); err != nil {
		return nil, err
	}
	if !json.Valid(text.Bytes()) {
		return nil, fmt.Errorf("%s gives invalid JSON:\n%s", files+name, text.String())
	}
	return text.Bytes(), nil
}

// pack makes the SBOM, the npm package and the MCP bundle of a platform with its program, a file in the folder.
func (r *release) pack(p platform, file string) error {
	r.Platform = p
	program, err := os.ReadFile(filepath.Join(r.folder, file))
	if err != nil {
		return err
	}
	r.sum(file, program)
	list, err := r.sbom(filepath.Join(r.folder, file), file)
	if err != nil {
		return err
	}
	if _, err := r.write(file+".cdx.json", list); err != nil {
		return err
	}
	description, err := r.render("platform.json")
	if err != nil {
		return err
	}
	manifest, err := r.render("manifest.json")
	if err != nil {
		return err
	}
	readme, err := os.ReadFile(files + "PLATFORM.md")
	if err != nil {
		return err
	}
	packed, err := tgz(r.time, "package", []entry{
		{"package.json", description, false}, {"README.md", readme, false},
		{"LICENSE", r.license, false}, {"THIRD_PARTY_LICENSES", r.thirdParty, false},
		{"bin/parley" + p.Suffix(), program, true},
	})
	if err != nil {
		return err
	}
	if _, err := r.write("parley-chat-parley-"+p.Name()+"-"+r.Version+".tgz", packed); err != nil {
		return err
	}
	bundled, err := zipped(r.time, []entry{
		{"manifest.json", manifest, false}, {"LICENSE", r.license, false}, {"THIRD_PARTY_LICENSES", r.thirdParty, false},
		{"server/parley" + p.Suffix(), program, true},
	})
	if err != nil {
		return err
	}
	name := "parley-" + p.Name() + ".mcpb"
	hash, err := r.write(name, bundled)
	r.Bundles = append(r.Bundles, bundle{name, hash})
	return err
}

// finish writes what there is once: the npm package that finds the platform's, server.json, statements on known vulnerabilities (OpenVEX),
// the licences and SHA256SUMS.
func (r *release) finish() error {
	description, err := r.render("package.json")
	if err != nil {
		return err
	}
	readme, err := os.ReadFile(files + "README.md")
	if err != nil {
		return err
	}
	launcher, err := os.ReadFile(files + "parley.js")
	if err != nil {
		return err
	}
	packed, err := tgz(r.time, "package", []entry{
		{"package.json", description, false}, {"README.md", readme, false}, {"LICENSE", r.license, false}, {"bin/parley.js", launcher, true},
	})
	if err != nil {
		return err
	}
	listing, err := r.render("server.json")
	if err != nil {
		return err
	}
	statements, err := os.ReadFile(files + "openvex.json")
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"parley-chat-parley-" + r.Version + ".tgz": packed, "parley-" + r.Version + ".openvex.json": statements,
		"server.json": listing, "LICENSE": r.license, "THIRD_PARTY_LICENSES": r.thirdParty,
	} {
		if _, err := r.write(name, content); err != nil {
			return err
		}
	}
	slices.SortFunc(r.sums, func(a, b string) int { return strings.Compare(a[2*sha256.Size:], b[2*sha256.Size:]) })
	return os.WriteFile(filepath.Join(r.folder, "SHA256SUMS"), []byte(strings.Join(r.sums, "")), 0o644)
}
