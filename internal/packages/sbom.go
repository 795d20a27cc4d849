package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// sbom returns what a program is made of, in the JSON of CycloneDX: the modules that Go's linker recorded in the program, with their
// checksums of the Go checksum database, and the standard library.
func (r *release) sbom(program, name string) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	self := cyclonedx.Component{
		BOMRef: "parley", Type: cyclonedx.ComponentTypeApplication, Name: "parley", Version: r.Version,
		PackageURL: "pkg:golang/" + info.Main.Path + "@v" + r.Version,
		Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
		Properties: &[]cyclonedx.Property{{Name: "commit", Value: r.commit}},
	}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	components := []cyclonedx.Component{{
		BOMRef: "std", Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: goVersion, PackageURL: "pkg:golang/std@" + goVersion,
	}}
	needed := []string{"std"}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		component := cyclonedx.Component{
			BOMRef: module.Path, Type: cyclonedx.ComponentTypeLibrary, Name: module.Path, Version: module.Version,
			PackageURL: "pkg:golang/" + module.Path + "@" + module.Version,
		}
		if encoded, ok := strings.CutPrefix(module.Sum, "h1:"); ok {
			hash, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				return nil, fmt.Errorf("the checksum of %s: %w", module.Path, err)
			}
			component.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
		}
		components, needed = append(components, component), append(needed, module.Path)
	}
	list := cyclonedx.NewBOM()
	// The specification wants a random number, and the same number for the same list.
	hash := sha256.Sum256([]byte(name + r.commit))
	list.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceOID, hash[:]).String()
	list.Metadata = &cyclonedx.Metadata{Timestamp: r.date(), Component: &self}
	list.Components = &components
	list.Dependencies = &[]cyclonedx.Dependency{{Ref: "parley", Dependencies: &needed}}
	var text bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(list)
	return text.Bytes(), err
}
