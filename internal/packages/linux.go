package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers its format
	nfpmfiles "github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers its format
)

// packLinux makes the .deb and the .rpm of a platform. program is the path of its program.
func (r *release) packLinux(p platform, program string) error {
	for _, format := range []string{"deb", "rpm"} {
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		info := r.describe(p)
		info.Contents = r.contents(format, program)
		switch format {
		case "deb":
			info.Scripts = nfpm.Scripts{
				PostInstall: files + "linux/deb-postinst", PreRemove: files + "linux/deb-prerm", PostRemove: files + "linux/deb-postrm",
			}
		case "rpm":
			info.Scripts = nfpm.Scripts{
				PostInstall: files + "linux/rpm-post", PreRemove: files + "linux/rpm-preun", PostRemove: files + "linux/rpm-postun",
			}
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

// contents returns what a package installs.
func (r *release) contents(format, program string) (contents nfpmfiles.Contents) {
	add := func(kind, source, destination string, mode fs.FileMode) {
		contents = append(contents, &nfpmfiles.Content{
			Type: kind, Source: source, Destination: destination, FileInfo: &nfpmfiles.ContentFileInfo{Owner: "root", Group: "root", Mode: mode},
		})
	}
	const documents = "/usr/share/doc/parley/"
	zsh := "/usr/share/zsh/vendor-completions/_parley"
	if format == "rpm" {
		zsh = "/usr/share/zsh/site-functions/_parley"
	}
	add(nfpmfiles.TypeDir, "", "/etc/parley", 0o750)
	add(nfpmfiles.TypeDir, "", "/etc/parley/credentials", 0o700)
	add(nfpmfiles.TypeConfigNoReplace, "deploy/parley.yaml", "/etc/parley/parley.yaml", 0o640)
	add("", program, "/usr/bin/parley", 0o755)
	add("", "deploy/parley.service", "/usr/lib/systemd/system/parley.service", 0o644)
	add("", files+"linux/sysusers.conf", "/usr/lib/sysusers.d/parley.conf", 0o644)
	add("", files+"completion/parley.bash", "/usr/share/bash-completion/completions/parley", 0o644)
	add("", files+"completion/parley.zsh", zsh, 0o644)
	add("", files+"completion/parley.fish", "/usr/share/fish/vendor_completions.d/parley.fish", 0o644)
	add("", "LICENSE", documents+"copyright", 0o644)
	add("", r.licenses, documents+"THIRD_PARTY_LICENSES", 0o644)
	for _, name := range []string{
		"docs/install.md", "docs/run.md", "docs/money.md", "docs/disaster.md", "docs/payments.md", "CHANGELOG.md", "deploy/Caddyfile",
		"deploy/nginx.conf", "docs/haproxy.cfg", "docs/roles.sql",
	} {
		add("", name, documents+path.Base(name), 0o644)
	}
	for _, name := range []string{"rules.yaml", "dashboard.json"} {
		add("", "deploy/monitoring/"+name, documents+"monitoring/"+name, 0o644)
	}
	return contents
}
