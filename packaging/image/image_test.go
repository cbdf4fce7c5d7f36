package image

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/Azure/AKSFlexNode/packaging/notice"
	"github.com/Azure/AKSFlexNode/packaging/oci"
)

// programs builds a small program in place of the provider, for each architecture.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, arch := range example.Architectures {
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o",
			filepath.Join(dir, arch, "flexnode-rp"), "../deb/testdata/provider")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("cannot build for %s: %v\n%s", arch, err, out)
		}
	}
	return dir
}

var example = About{
	Name: "registry.example/flexnode-rp", Version: "1.2.3+4", Commit: "abc",
	Created: time.Unix(1795255960, 0), Architectures: []string{"amd64", "arm64"},
}

// The same programs make the same image, byte for byte, whatever the umask; another program makes
// another image.
func TestImageIsReproducible(t *testing.T) {
	made := func(umask int) (string, []byte) {
		defer syscall.Umask(syscall.Umask(umask))
		out := filepath.Join(t.TempDir(), "image.tar")
		digest, err := example.Write(t.Context(), programs(t), out)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return digest, text
	}
	digest, text := made(0o022)
	again, same := made(0o077)
	if digest != again || !bytes.Equal(text, same) {
		t.Errorf("the digests are %s and %s, of %d and %d bytes", digest, again, len(text), len(same))
	}
	other := programs(t)
	file := filepath.Join(other, "arm64", "flexnode-rp")
	program, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := program.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	changed, err := example.Write(t.Context(), other, filepath.Join(t.TempDir(), "image.tar"))
	if err != nil || changed == digest {
		t.Errorf("another program: %s %v", changed, err)
	}
}

// The archive is an OCI image layout with one named image for both architectures.
func TestArchive(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image.tar")
	digest, err := example.Write(t.Context(), programs(t), out)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, bytes.NewReader(text))
	if got := files["oci-layout"].text; got != `{
    "imageLayoutVersion": "1.0.0"
}` {
		t.Errorf("oci-layout: %q", got)
	}
	var top v1.IndexManifest
	if err := json.Unmarshal([]byte(files["index.json"].text), &top); err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 || top.Manifests[0].Digest.String() != digest {
		t.Fatalf("index.json: %+v", top)
	}
	if diff := cmp.Diff(map[string]string{
		"org.opencontainers.image.ref.name": "1.2.3-4",
		"io.containerd.image.name":          "registry.example/flexnode-rp:1.2.3-4",
	}, top.Manifests[0].Annotations); diff != "" {
		t.Error(diff)
	}
	if _, ok := files["blobs/sha256/"+top.Manifests[0].Digest.Hex]; !ok {
		t.Error("the image is not in the archive")
	}
}

type entry struct {
	header *tar.Header
	text   string
}

func unpack(t *testing.T, from io.Reader) map[string]entry {
	t.Helper()
	files := map[string]entry{}
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = entry{h, string(text)}
	}
}

// Each image has the program of its architecture, the licences of the code linked into it and
// trusted CAs, and does not run as root.
func TestImage(t *testing.T) {
	dir := programs(t)
	index, err := example.build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != len(example.Architectures) {
		t.Fatalf("%+v %v", manifest, err)
	}
	for i, arch := range example.Architectures {
		d := manifest.Manifests[i]
		if d.Platform == nil || d.Platform.OS != "linux" || d.Platform.Architecture != arch {
			t.Errorf("%s: the platform is %+v", arch, d.Platform)
		}
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkConfig(t, image, arch)
		checkContent(t, image, filepath.Join(dir, arch, "flexnode-rp"))
	}
}

func checkConfig(t *testing.T, image v1.Image, arch string) {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := file.Config
	if file.Architecture != arch || !file.Created.Equal(example.Created) ||
		c.User != "65532:65532" || c.Entrypoint[0] != "/flexnode-rp" || c.Cmd[0] != "serve" ||
		c.Labels["org.opencontainers.image.version"] != example.Version ||
		c.Labels["org.opencontainers.image.revision"] != example.Commit {
		t.Errorf("%s: %+v", arch, file)
	}
}

func checkContent(t *testing.T, image v1.Image, program string) {
	t.Helper()
	want, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	terms, err := notice.Of(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, l := range layers {
		content, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for name, e := range unpack(t, content) {
			got[name] = fmt.Sprintf("%o %d", e.header.Mode, e.header.Uid)
			switch name {
			case "flexnode-rp":
				if e.text != string(want) {
					t.Errorf("it does not have %s, but %d other bytes", program, len(e.text))
				}
			case "usr/share/doc/flexnode-rp/NOTICE":
				if e.text != string(terms) || !strings.Contains(e.text, "\nGo 1.") {
					t.Errorf("beside %s the notice is\n%.2000s", program, e.text)
				}
			case "etc/ssl/certs/ca-certificates.crt":
				pool := x509.NewCertPool()
				if !pool.AppendCertsFromPEM([]byte(e.text)) || strings.Count(e.text,
					"BEGIN CERTIFICATE") < 50 {
					t.Errorf("beside %s there are too few CAs", program)
				}
			}
		}
	}
	if diff := cmp.Diff(map[string]string{
		"flexnode-rp": "755 0", "etc/ssl/certs/ca-certificates.crt": "644 0",
		"usr/share/doc/flexnode-rp/NOTICE": "644 0",
		"etc/flexnode-rp/":                 "750 65532", "var/lib/flexnode-rp/": "700 65532",
	}, got); diff != "" {
		t.Error(diff)
	}
}

// A layout for one architecture can be read back.
func TestLayout(t *testing.T) {
	one, dir := example, programs(t)
	one.Architectures, one.Fast = []string{"arm64"}, true
	out := filepath.Join(t.TempDir(), "image")
	if _, err := one.Write(t.Context(), dir, out); err != nil {
		t.Fatal(err)
	}
	image, err := oci.ReadLayout(out)
	if err != nil {
		t.Fatal(err)
	}
	checkConfig(t, image, "arm64")
	checkContent(t, image, filepath.Join(dir, "arm64/flexnode-rp"))
	if _, err := example.Write(t.Context(), dir, out+"s"); err != nil {
		t.Fatal(err)
	}
	if _, err := oci.ReadLayout(out + "s"); err == nil {
		t.Error("one image of two architectures is read")
	}
}
