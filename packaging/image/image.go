// Package image makes the container image of flexnode-rp: only the program, the licences of the
// code linked into it and trusted CAs, with a user other than root. `make image` runs it through
// packaging/release; the lab uses it for its own registry.
package image

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/Azure/AKSFlexNode/packaging/notice"
	"github.com/Azure/AKSFlexNode/packaging/oci"
)

// user is the numeric ID that the program runs as, from which Kubernetes sees that it is not root.
const user = 65532

// About describes an image.
type About struct {
	// Name is the image's name, possibly with a registry.
	Name, Version, Commit string
	Created               time.Time
	// Architectures are the image's architectures.
	Architectures []string
	// Fast disables compression, for use on the same machine.
	Fast bool
}

// Write builds the image for all architectures from ARCHITECTURE/flexnode-rp in the directory
// programs. It writes an archive if out ends in .tar, else a directory, and returns the image's
// digest.
func (a About) Write(ctx context.Context, programs, out string) (digest string, err error) {
	index, err := a.build(ctx, programs)
	if err != nil {
		return "", err
	}
	hash, err := index.Digest()
	if err != nil {
		return "", err
	}
	if !strings.HasSuffix(out, ".tar") {
		return hash.String(), oci.WriteLayout(out, index, a.Name, tag(a.Version))
	}
	f, err := os.Create(out)
	if err != nil {
		return "", fmt.Errorf("cannot write the image: %w", err)
	}
	return hash.String(),
		errors.Join(oci.WriteArchive(f, index, a.Name, tag(a.Version)), f.Close())
}

// tag returns a version as a valid tag (distribution-spec: [a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}).
func tag(version string) string { return strings.ReplaceAll(version, "+", "-") }

// build builds the image for all architectures.
func (a About) build(ctx context.Context, programs string) (v1.ImageIndex, error) {
	var images []v1.Image
	for _, arch := range a.Architectures {
		program := filepath.Join(programs, arch, "flexnode-rp")
		terms, err := notice.Of(ctx, program)
		if err != nil {
			return nil, err
		}
		added := func(p *oci.Packer) error {
			return errors.Join(p.Copy("flexnode-rp", program, 0o755),
				p.File("usr/share/doc/flexnode-rp/NOTICE", terms, 0o644))
		}
		image, err := oci.Image{
			Architecture: arch, Created: a.Created, By: "flexnode-rp " + a.Version, Config: a.config(),
			Layers: []oci.Layer{{Compressed: !a.Fast, Pack: base}, {Compressed: !a.Fast, Pack: added}},
		}.Build()
		if err != nil {
			return nil, fmt.Errorf("cannot make the image for %s: %w", arch, err)
		}
		images = append(images, image)
	}
	return oci.Index(images...)
}

func (a About) config() v1.Config {
	return v1.Config{
		User: fmt.Sprintf("%d:%d", user, user), Entrypoint: []string{"/flexnode-rp"},
		Cmd: []string{"serve"}, WorkingDir: "/", StopSignal: "SIGTERM",
		ExposedPorts: map[string]struct{}{"8447/tcp": {}, "9447/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "flexnode-rp",
			"org.opencontainers.image.description": "The resource provider of AKS Flex Node",
			"org.opencontainers.image.source":      "https://github.com/Azure/AKSFlexNode",
			"org.opencontainers.image.licenses":    "MIT",
			"org.opencontainers.image.version":     a.Version,
			"org.opencontainers.image.revision":    a.Commit,
		},
	}
}

// base adds the files that the program needs: the CAs, and its directories, where volumes are
// mounted.
func base(p *oci.Packer) error {
	return errors.Join(p.File("etc/ssl/certs/ca-certificates.crt", authorities(), 0o644),
		p.Dir("etc/flexnode-rp", 0o750, user), p.Dir("var/lib/flexnode-rp", 0o700, user))
}

// authorities returns the CAs in Mozilla's program, except those with constraints, which a file
// cannot express.
func authorities() []byte {
	var text []byte
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			block := &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}
			text = append(text, pem.EncodeToMemory(block)...)
		}
	}
	return text
}
