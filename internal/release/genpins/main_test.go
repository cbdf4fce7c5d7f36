package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/release"
)

func sum(text string) string {
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:])
}

// both returns the pins of a release for both architectures.
func both(name, version string) []release.Pin {
	var pins []release.Pin
	for _, arch := range []string{"amd64", "arm64"} {
		pins = append(pins, release.Pin{Name: name, Version: version, Arch: arch,
			Digest: sum(name + version + arch)})
	}
	return pins
}

func lines(pins []release.Pin) string {
	var text string
	for _, p := range pins {
		text += p.Name + " " + p.Version + " " + p.Arch + " " + p.Digest
		if p.Size > 0 {
			text += fmt.Sprint(" ", p.Size)
		}
		text += "\n"
	}
	return text
}

// written runs the generator and returns the digest lines of the file.
func written(t *testing.T, g generator, from ...string) (string, error) {
	t.Helper()
	g.Out = filepath.Join(t.TempDir(), "pins.txt")
	if err := g.run(t.Context(), from); err != nil {
		if _, exists := os.Stat(g.Out); exists == nil {
			t.Error("it has failed, and written a file")
		}
		return "", err
	}
	text, err := os.ReadFile(g.Out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), nil
}

func list(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "digests.txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The repository's pins.txt is what the generator writes.
func TestPinsAreGenerated(t *testing.T) {
	want, err := os.ReadFile("../pins.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(source(release.Pins()))); diff != "" {
		t.Errorf("pins.txt is not as `make pins` writes it:\n%s", diff)
	}
	if err := complete(release.Pins()); err != nil {
		t.Error(err)
	}
}

// A list adds to the pins, newest version first whatever the order of the list; other pins are
// kept.
func TestList(t *testing.T) {
	old, added, newer := both("runc", "1.3.4"), both("runc", "1.3.10"), both("runc", "1.4.0")
	g := generator{Pinned: append(both("containerd", "2.2.1"), old...)}
	old[0].Size, newer[0].Size = 12, 1<<30 // a length is added to what is pinned
	text := "# a comment\n\n" + lines(added) + lines(old) + lines(newer)
	got, err := written(t, g, list(t, text))
	want := lines(both("containerd", "2.2.1")) + lines(newer) + lines(added) + lines(old)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestBadLists(t *testing.T) {
	good := both("runc", "1.3.4")
	good[0].Size = 7
	other := good[0]
	other.Digest = sum("another")
	shared := release.Pin{Name: "runc", Version: "1.3.5", Arch: "amd64", Digest: good[0].Digest}
	for name, tt := range map[string]struct{ text, want string }{
		"fields":       {"runc 1.3.5 amd64\n", "line 1: it has 3 fields, not 4 or 5"},
		"name":         {"runk 1.3.5 amd64 " + sum("x"), `"runk" is not one of kubelet`},
		"version":      {"runc 1.3 amd64 " + sum("x"), `"1.3" is not a release`},
		"candidate":    {"runc 1.5.0-rc.1 amd64 " + sum("x"), "is not a release x.y.z"},
		"architecture": {"runc 1.3.5 riscv64 " + sum("x"), `"riscv64" is not amd64 or arm64`},
		"digest":       {"runc 1.3.5 amd64 " + strings.ToUpper(sum("x")), "is not a digest of runc"},
		"kind":         {"node-problem-detector 1.3.5 amd64 " + sum("x"), "is not a digest of node-"},
		"changed":      {lines([]release.Pin{other}), "runc 1.3.4 amd64 is pinned as " + good[0].Digest},
		"length":       {"runc 1.3.5 amd64 " + sum("x") + " 0", `"0" is not a length in bytes`},
		"other length": {"runc 1.3.4 amd64 " + good[0].Digest + " 8", "pinned with 7 bytes, not 8"},
		"shared":       {lines([]release.Pin{shared}), "runc 1.3.5 amd64 has the digest of runc 1.3.4"},
		"half": {lines(both("runc", "1.3.5")[:1]),
			"runc 1.3.5 is pinned, but not runc for arm64"},
		"kubelet": {lines(both("kubelet", "1.36.5")), "1.36.5 is pinned, but not kubectl for amd64"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := written(t, generator{Pinned: good}, list(t, tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := written(t, generator{}, "no-such-file"); err == nil {
		t.Error("a list that is not there is read")
	}
}

// Digests come from the projects' own checksum files, in each project's format, and lengths from
// the servers.
func TestPublished(t *testing.T) {
	files := map[string]string{}
	const github = "/github.com/"
	for _, p := range append(append(both("kubelet", "1.99.1"), both("kubectl", "1.99.1")...),
		both("kubeadm", "1.99.1")...) {
		path := "/dl.k8s.io/v1.99.1/bin/linux/" + p.Arch + "/" + p.Name
		files[path], files[path+".sha256"] = "12345", p.Digest
	}
	for _, p := range both("containerd", "2.99.1") {
		file := "containerd-2.99.1-linux-" + p.Arch + ".tar.gz"
		path := github + "containerd/containerd/releases/download/v2.99.1/" + file
		files[path], files[path+".sha256sum"] = "1234567", p.Digest+"  "+file+"\n"
	}
	for _, p := range both("runc", "1.99.1") {
		files[github+"opencontainers/runc/releases/download/v1.99.1/runc."+p.Arch] = "123"
		files[github+"opencontainers/runc/releases/download/v1.99.1/runc.sha256sum"] +=
			p.Digest + " *runc." + p.Arch + "\n"
	}
	server := httptest.NewTLSServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			text, ok := files[r.URL.Path]
			if !ok {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprint(w, text)
		}))
	defer server.Close()
	g := generator{Mirror: server.URL, HTTP: server.Client(), Pinned: both("runc", "1.3.4")}
	got, err := written(t, g, "kubernetes@1.99.1", "containerd@v2.99.1", "runc@1.99.1")
	long := func(size int64, name, version string) string {
		pins := both(name, version)
		pins[0].Size, pins[1].Size = size, size
		return lines(pins)
	}
	want := long(5, "kubelet", "1.99.1") + long(5, "kubectl", "1.99.1") +
		long(5, "kubeadm", "1.99.1") + long(7, "containerd", "2.99.1") +
		long(3, "runc", "1.99.1") + lines(both("runc", "1.3.4"))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for from, want := range map[string]string{
		"docker@1.2.3":                 "cannot pin docker: known are kubernetes, kubelet",
		"node-problem-detector@1.99.1": "upstream publishes no checksum for it",
		"containerd@2":                 `cannot use version "2" of containerd`,
	} {
		if _, err := written(t, g, from); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", from, err, want)
		}
	}
}

// After a mirror without the release, the project itself is asked, which does not have it either.
func TestNotPublished(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	client := &http.Client{Transport: only{server.Client().Transport, server.Listener.Addr().String()}}
	_, err := written(t, generator{Mirror: server.URL, HTTP: client}, "runc@1.99.1")
	if err == nil || !strings.Contains(err.Error(), "runc 1.99.1") {
		t.Errorf("got %v", err)
	}
}

// only lets requests through to one host: all others get 404.
type only struct {
	http.RoundTripper
	host string
}

func (o only) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != o.host {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
	}
	return o.RoundTripper.RoundTrip(r)
}
