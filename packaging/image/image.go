// Command image makes the container image of flexnode-rp from its programs: nothing but the program
// and the certificate authorities that it trusts, for a user that is not root. `make image` calls it.
package main

import (
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/Azure/AKSFlexNode/internal/oci"
)

// user is who the program runs as. Kubernetes can tell by the number that it is not root.
const user = 65532

// architectures are those that the image is for.
var architectures = []string{"amd64", "arm64"}

// about is what an image says of itself.
type about struct {
	name, version, commit string
	created               time.Time
}

func main() {
	var a about
	var created int64
	flag.StringVar(&a.name, "name", "flexnode-rp", "the image's `name`, perhaps with a registry")
	flag.StringVar(&a.version, "version", "dev", "version, and tag")
	flag.StringVar(&a.commit, "commit", "unknown", "what it was built from")
	flag.Int64Var(&created, "created", 0, "its time, in `seconds` of Unix time")
	programs := flag.String("programs", "bin/image", "directory with ARCHITECTURE/flexnode-rp")
	out := flag.String("out", "bin/flexnode-rp-image.tar", "`file` to write")
	flag.Parse()
	a.created = time.Unix(created, 0)
	digest, err := write(a, *programs, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	fmt.Println(*out, digest)
}

// write makes the image and writes it to a file; it returns the image's digest.
func write(a about, programs, out string) (digest string, err error) {
	index, err := build(a, programs)
	if err != nil {
		return "", err
	}
	f, err := os.Create(out)
	if err != nil {
		return "", fmt.Errorf("cannot write the image: %w", err)
	}
	if err := errors.Join(oci.WriteArchive(f, index, a.name, tag(a.version)), f.Close()); err != nil {
		return "", err
	}
	hash, err := index.Digest()
	return hash.String(), err
}

// tag is a version as a tag may be (distribution-spec: [a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}).
func tag(version string) string { return strings.ReplaceAll(version, "+", "-") }

// build makes the image for all architectures.
func build(a about, programs string) (v1.ImageIndex, error) {
	var images []v1.Image
	for _, arch := range architectures {
		image, err := oci.Image{
			Architecture: arch, Created: a.created, By: "flexnode-rp " + a.version,
			Config: config(a),
			Layers: []oci.Layer{
				{Compressed: true, Pack: base},
				{Compressed: true, Pack: func(p *oci.Packer) error {
					return p.Copy("flexnode-rp", filepath.Join(programs, arch, "flexnode-rp"), 0o755)
				}},
			},
		}.Build()
		if err != nil {
			return nil, fmt.Errorf("cannot make the image for %s: %w", arch, err)
		}
		images = append(images, image)
	}
	return oci.Index(images...)
}

func config(a about) v1.Config {
	return v1.Config{
		User: fmt.Sprintf("%d:%d", user, user), Entrypoint: []string{"/flexnode-rp"},
		Cmd: []string{"serve"}, WorkingDir: "/", StopSignal: "SIGTERM",
		ExposedPorts: map[string]struct{}{"8447/tcp": {}, "9447/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "flexnode-rp",
			"org.opencontainers.image.description": "The resource provider of AKS Flex Node",
			"org.opencontainers.image.source":      "https://github.com/Azure/AKSFlexNode",
			"org.opencontainers.image.licenses":    "MIT",
			"org.opencontainers.image.version":     a.version,
			"org.opencontainers.image.revision":    a.commit,
		},
	}
}

// base is what the program needs beside itself: the CAs of the Internet, and directories of its own
// for its store, where volumes are mounted.
func base(p *oci.Packer) error {
	if err := p.File("etc/ssl/certs/ca-certificates.crt", authorities(), 0o644); err != nil {
		return err
	}
	if err := p.Dir("etc/flexnode-rp", 0o750, user); err != nil {
		return err
	}
	return p.Dir("var/lib/flexnode-rp", 0o700, user)
}

// authorities are the CAs that Mozilla trusts, but for those that are trusted under a condition,
// which a file cannot say.
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
