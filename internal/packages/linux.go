package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers its format
	nfpmfiles "github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers its format
)

// installed is a file or, without content, a folder of a .deb or .rpm package.
type installed struct {
	path    string
	content []byte
	mode    fs.FileMode // default: 0644
	kind    string      // of nfpm; default: a file
}

// packLinux makes the .deb and the .rpm of a platform. The folder is for files that nfpm reads.
func (r *release) packLinux(p platform, folder string, program []byte) error {
	for _, format := range []string{"deb", "rpm"} {
		content, err := r.installedFiles(format, program)
		if err != nil {
			return err
		}
		info := r.describe(p)
		if info.Contents, err = stage(filepath.Join(folder, format), content); err != nil {
			return err
		}
		if err := scripts(format, filepath.Join(folder, format), &info.Scripts); err != nil {
			return err
		}
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		if format == "rpm" {
			info.Release = "1" // an .rpm must have one
		}
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		var packed bytes.Buffer
		if err := packager.Package(info, &packed); err != nil {
			return fmt.Errorf("build the .%s: %w", format, err)
		}
		if _, err := r.write(packager.ConventionalFileName(info), packed.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// describe returns the fields of a package.
func (r *release) describe(p platform) *nfpm.Info {
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "parley", Version: r.Version, Arch: p.goarch, Platform: "linux", Section: "net", Priority: "optional", MTime: r.time,
		Maintainer: "Parley <https://github.com/parley-chat/parley/issues>", Homepage: "https://github.com/parley-chat/parley",
		License: "Apache-2.0",
		Description: "messaging for AI agents, paid per call with x402\n" +
			"The server parley, its systemd unit, and the command line for operators and agents.\nIt needs PostgreSQL 15 or later.",
	})
	info.Depends = []string{"systemd"}
	info.RPM.BuildHost = "parley"
	info.RPM.Summary = "Messaging for AI agents, paid per call with x402"
	info.Deb.Fields = map[string]string{"Bugs": "https://github.com/parley-chat/parley/issues"}
	return info
}

// installedFiles returns what a package installs.
func (r *release) installedFiles(format string, program []byte) ([]installed, error) {
	zsh := "/usr/share/zsh/vendor-completions/_parley"
	if format == "rpm" {
		zsh = "/usr/share/zsh/site-functions/_parley"
	}
	content := []installed{
		{path: "/usr/bin/parley", content: program, mode: 0o755},
		{path: "/etc/parley", mode: 0o750, kind: nfpmfiles.TypeDir},
		{path: "/etc/parley/credentials", mode: 0o700, kind: nfpmfiles.TypeDir},
		{path: "/usr/share/doc/parley/copyright", content: r.license},
		{path: "/usr/share/doc/parley/THIRD_PARTY_LICENSES", content: r.thirdParty},
	}
	for _, one := range []struct {
		from, to, kind string
		mode           fs.FileMode
	}{
		{"deploy/parley.yaml", "/etc/parley/parley.yaml", nfpmfiles.TypeConfigNoReplace, 0o640},
		{"deploy/parley.service", "/usr/lib/systemd/system/parley.service", "", 0},
		{"files/linux/sysusers.conf", "/usr/lib/sysusers.d/parley.conf", "", 0},
		{"files/completion/parley.bash", "/usr/share/bash-completion/completions/parley", "", 0},
		{"files/completion/parley.zsh", zsh, "", 0},
		{"files/completion/parley.fish", "/usr/share/fish/vendor_completions.d/parley.fish", "", 0},
		{"docs/install.md", "/usr/share/doc/parley/", "", 0},
		{"docs/run.md", "/usr/share/doc/parley/", "", 0},
		{"docs/money.md", "/usr/share/doc/parley/", "", 0},
		{"docs/disaster.md", "/usr/share/doc/parley/", "", 0},
		{"docs/payments.md", "/usr/share/doc/parley/", "", 0},
		{"CHANGELOG.md", "/usr/share/doc/parley/", "", 0},
		{"deploy/Caddyfile", "/usr/share/doc/parley/", "", 0},
		{"deploy/nginx.conf", "/usr/share/doc/parley/", "", 0},
		{"docs/haproxy.cfg", "/usr/share/doc/parley/", "", 0},
		{"docs/roles.sql", "/usr/share/doc/parley/", "", 0},
		{"deploy/monitoring/rules.yaml", "/usr/share/doc/parley/monitoring/", "", 0},
		{"deploy/monitoring/dashboard.json", "/usr/share/doc/parley/monitoring/", "", 0},
	} {
		read := os.ReadFile
		if strings.HasPrefix(one.from, "files/") {
			read = files.ReadFile
		}
		text, err := read(one.from)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(one.to, "/") {
			one.to = path.Join(one.to, path.Base(one.from))
		}
		content = append(content, installed{one.to, text, one.mode, one.kind})
	}
	return content, nil
}

// stage writes files into a folder, where nfpm reads them, and returns them in nfpm's form.
func stage(folder string, content []installed) (nfpmfiles.Contents, error) {
	var staged nfpmfiles.Contents
	for _, one := range content {
		if one.mode == 0 {
			one.mode = 0o644
		}
		info := &nfpmfiles.ContentFileInfo{Owner: "root", Group: "root", Mode: one.mode}
		file := &nfpmfiles.Content{Destination: one.path, Type: one.kind, FileInfo: info}
		if one.kind != nfpmfiles.TypeDir {
			file.Source = filepath.Join(folder, filepath.FromSlash(one.path))
			if err := os.MkdirAll(filepath.Dir(file.Source), 0o700); err != nil {
				return nil, err
			}
			if err := os.WriteFile(file.Source, one.content, 0o600); err != nil {
				return nil, err
			}
		}
		staged = append(staged, file)
	}
	return staged, nil
}

// scripts writes the scripts of a package into a folder, where nfpm reads them.
func scripts(format, folder string, into *nfpm.Scripts) error {
	names := map[string]*string{"deb-postinst": &into.PostInstall, "deb-prerm": &into.PreRemove, "deb-postrm": &into.PostRemove}
	if format == "rpm" {
		names = map[string]*string{"rpm-post": &into.PostInstall, "rpm-preun": &into.PreRemove, "rpm-postun": &into.PostRemove}
	}
	for name, path := range names {
		text, err := files.ReadFile("files/linux/" + name)
		if err != nil {
			return err
		}
		*path = filepath.Join(folder, name)
		if err := os.WriteFile(*path, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
