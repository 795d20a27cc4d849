package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRender: the JSON files are valid, and the registry, npm and the MCP bundle speak of the same thing.
func TestRender(t *testing.T) {
	t.Chdir("../..") // paths are those of the repository
	r := &release{Version: "1.2.3", Platforms: platforms, Platform: platforms[4], Bundles: []bundle{{"a.mcpb", "0"}, {"b.mcpb", "1"}}}
	rendered := map[string]map[string]any{}
	for _, name := range []string{"package.json", "platform.json", "manifest.json", "server.json"} {
		text, err := r.render(name)
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		if object["version"] != "1.2.3" {
			t.Errorf("%s has version %v", name, object["version"])
		}
		rendered[name] = object
	}
	name, _ := rendered["server.json"]["name"].(string)
	if name != rendered["package.json"]["mcpName"] || strings.Count(name, "/") != 1 {
		t.Errorf("the registry's name is %q, mcpName is %q", name, rendered["package.json"]["mcpName"])
	}
	if description, _ := rendered["server.json"]["description"].(string); description == "" || len(description) > 100 {
		t.Errorf("the registry's description has %d characters, at most 100 are allowed", len(description))
	}
	if count := len(rendered["package.json"]["optionalDependencies"].(map[string]any)); count != len(platforms) {
		t.Errorf("npm would install one of %d packages, there are %d platforms", count, len(platforms))
	}
	if packages := rendered["server.json"]["packages"].([]any); len(packages) != 3 {
		t.Errorf("server.json has %d packages, want npm and two bundles", len(packages))
	}
}

// TestArchives: programs can be executed, and times are those that were given.
func TestArchives(t *testing.T) {
	t.Parallel()
	modified := time.Unix(1_700_000_000, 0).UTC()
	entries := []entry{{"LICENSE", []byte("text"), false}, {"bin/parley", []byte("program"), true}}
	packed, err := tgz(modified, "package", entries)
	if err != nil {
		t.Fatal(err)
	}
	uncompressed, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(uncompressed)
	for _, want := range entries {
		header, err := archive.Next()
		if err != nil || header.Name != "package/"+want.Name || header.Mode != int64(want.mode()) || !header.ModTime.Equal(modified) {
			t.Errorf("the tar archive has %+v, %v; want %s", header, err, want.Name)
		}
	}
	bundled, err := zipped(modified, entries)
	if err != nil {
		t.Fatal(err)
	}
	files, err := zip.NewReader(bytes.NewReader(bundled), int64(len(bundled)))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range entries {
		if file := files.File[i]; file.Name != want.Name || file.Mode() != want.mode() || !file.Modified.Equal(modified) {
			t.Errorf("the zip archive has %+v, want %s", file.FileHeader, want.Name)
		}
	}
}

func TestChosen(t *testing.T) {
	t.Parallel()
	found, err := chosen("linux-arm64,win32-x64")
	if err != nil || len(found) != 2 || found[1].goos != "windows" || found[1].Suffix() != ".exe" {
		t.Errorf("two platforms are %+v, %v", found, err)
	}
	if _, err := chosen("linux-riscv64"); err == nil || !strings.Contains(err.Error(), "linux-riscv64") {
		t.Errorf("an unknown platform gives %v", err)
	}
}

// TestContents: archives and Linux packages have the alert rules and the dashboard, and not the tests of the rules.
func TestContents(t *testing.T) {
	t.Chdir("../..") // paths are those of the repository
	r := &release{}
	entries, err := r.archived(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := map[string][]string{}
	for _, one := range entries {
		packed["tar.gz"] = append(packed["tar.gz"], one.Name)
	}
	for _, format := range []string{"deb", "rpm"} {
		for _, one := range r.contents(format, "parley") {
			packed[format] = append(packed[format], one.Destination)
		}
	}
	installed := "/usr/share/doc/parley/monitoring/"
	for format, folder := range map[string]string{"tar.gz": "deploy/monitoring/", "deb": installed, "rpm": installed} {
		for name, want := range map[string]bool{"rules.yaml": true, "dashboard.json": true, "rules_test.yaml": false} {
			if slices.Contains(packed[format], folder+name) != want {
				t.Errorf("the %s has %s%s: %t, want %t", format, folder, name, !want, want)
			}
		}
	}
}
