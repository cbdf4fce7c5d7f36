package deb

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/release"
)

// BOM returns a program's bill of materials in CycloneDX 1.6, from its build information: Go's
// standard library and every module, for the agent also the artifacts that it installs, which are
// pinned by digest. It does not say when and where it was made.
func BOM(program, name string, r Release, artifacts bool) ([]byte, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("cannot read the program: %w", err)
	}
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("cannot tell what %s is made of: %w", program, err)
	}
	sum := sha256.Sum256(data)
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceURL, sum[:]).String()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.Time.UTC().Format(time.RFC3339),
		Component: &cyclonedx.Component{
			BOMRef: name, Type: cyclonedx.ComponentTypeApplication, Name: name, Version: r.Version,
			Hashes: digests(hex.EncodeToString(sum[:])),
		},
	}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	list := []cyclonedx.Component{component("std", goVersion, "")}
	refs := []string{list[0].BOMRef}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		c := component(module.Path, module.Version, module.Sum)
		list, refs = append(list, c), append(refs, c.BOMRef)
	}
	if artifacts {
		list = append(list, pinned()...)
	}
	bom.Components = &list
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: name, Dependencies: &refs}}
	var out bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).
		EncodeVersion(bom, cyclonedx.SpecVersion1_6)
	return out.Bytes(), err
}

// component returns the component of a Go module. Its sum is that of go.sum, not a file's.
func component(path, version, sum string) cyclonedx.Component {
	purl := "pkg:golang/" + path + "@" + version
	c := cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: path,
		Version: version, PackageURL: purl}
	if sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go.sum", Value: sum}}
	}
	return c
}

// pinned returns the files that the agent installs and accepts only with these digests. They are
// not in the package.
func pinned() (list []cyclonedx.Component) {
	for _, p := range release.Pins() {
		purl := "pkg:generic/" + p.Name + "@" + p.Version + "?arch=" + p.Arch
		list = append(list, cyclonedx.Component{BOMRef: purl, Name: p.Name, Version: p.Version,
			Type: cyclonedx.ComponentTypeApplication, PackageURL: purl,
			Scope: cyclonedx.ScopeOptional, Hashes: digests(p.Digest)})
	}
	return list
}

// digests returns a file's digest: SHA-256 or SHA-512, by its length.
func digests(digest string) *[]cyclonedx.Hash {
	algorithm := cyclonedx.HashAlgoSHA256
	if len(digest) == 128 {
		algorithm = cyclonedx.HashAlgoSHA512
	}
	return &[]cyclonedx.Hash{{Algorithm: algorithm, Value: digest}}
}
