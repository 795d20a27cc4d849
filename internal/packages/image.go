package main

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	roots "golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageOf is the platform and the program of one of the images.
type imageOf struct {
	platform platform
	program  []byte
}

// image returns an OCI archive: an index with an image for each platform. Images consist of the program, licences and the certificates of
// Mozilla's root store, which a module pins: there is no base image to download.
func (r *release) image(of []imageOf) (archive []byte, err error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, one := range of {
		image, err := r.platformImage(one)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: one.platform.goos, Architecture: one.platform.goarch}},
		})
	}
	folder := filepath.Join(r.temporary, "image")
	top, err := layout.Write(folder, empty.Index)
	if err != nil {
		return nil, err
	}
	if err := top.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.Version})); err != nil {
		return nil, err
	}
	entries, err := read(folder, "")
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	err = writeTar(&packed, r.time, "", entries)
	return packed.Bytes(), err
}

// platformImage returns the image of a platform.
func (r *release) platformImage(of imageOf) (v1.Image, error) {
	var content bytes.Buffer
	err := writeTar(&content, r.time, "", []entry{
		{"etc/passwd", []byte("parley:x:65532:65532:Parley:/:/parley\n"), false}, {"etc/group", []byte("parley:x:65532:\n"), false},
		{"etc/ssl/certs/ca-certificates.crt", certificates(), false},
		{"parley", of.program, true},
		{"usr/share/doc/parley/LICENSE", r.license, false}, {"usr/share/doc/parley/THIRD_PARTY_LICENSES", r.thirdParty, false},
	})
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = of.platform.goos, of.platform.goarch, v1.Time{Time: r.time}
	config.History = []v1.History{{Created: v1.Time{Time: r.time}, CreatedBy: "make packages"}}
	config.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/parley"}, Cmd: []string{"serve"}, StopSignal: "SIGTERM",
		ExposedPorts: map[string]struct{}{"8402/tcp": {}, "8404/tcp": {}},
		Env:          []string{"PATH=/", "PARLEY_LISTEN=0.0.0.0:8402", "PARLEY_ADMIN_LISTEN=0.0.0.0:8404"},
		Healthcheck: &v1.HealthConfig{
			Test:     []string{"CMD", "/parley", "healthcheck"},
			Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: 30 * time.Second, Retries: 3,
		},
		Labels: map[string]string{
			"org.opencontainers.image.title":         "Parley",
			"org.opencontainers.image.description":   "Messaging for AI agents, paid per call with x402",
			"org.opencontainers.image.licenses":      "Apache-2.0",
			"org.opencontainers.image.source":        "https://github.com/parley-chat/parley",
			"org.opencontainers.image.documentation": "https://github.com/parley-chat/parley/blob/main/docs/install.md",
			"org.opencontainers.image.version":       r.Version,
			"org.opencontainers.image.revision":      r.commit,
			"org.opencontainers.image.created":       r.date(),
		},
	}
	return mutate.ConfigFile(image, config)
}

// certificates returns the root certificates as PEM. Those that Mozilla trusts only for certificates of before some day are left out:
// PEM cannot say that.
func certificates() []byte {
	var text bytes.Buffer
	for root := range roots.Roots() {
		if root.Constraint == nil {
			text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return text.Bytes()
}

// read returns the files in a folder and its subfolders, ordered by name, for another folder in an archive.
func read(folder, into string) (entries []entry, err error) {
	err = filepath.WalkDir(folder, func(file string, found fs.DirEntry, err error) error {
		if err != nil || found.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(file)
		entries = append(entries, entry{path.Join(into, filepath.ToSlash(name)), content, false})
		return err
	})
	return entries, err
}
