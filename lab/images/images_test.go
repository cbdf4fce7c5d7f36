package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/Azure/AKSFlexNode/lab/component"
	"github.com/Azure/AKSFlexNode/packaging/oci"
)

// stocked returns a registry whose programs contain their names.
func stocked(t *testing.T) http.Handler {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"pause", "hello"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("I am "+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h, err := New(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestPull pulls as containerd does: manifest by tag, then config and layer by digest, with the
// name of the original registry in the query.
func TestPull(t *testing.T) {
	h := stocked(t)
	tests := map[string]struct{ repository, tag, program string }{
		"default of kubeadm":       {"pause", "3.10", "pause"},
		"default of containerd":    {"pause", "3.10.1", "pause"},
		"default of the agent":     {"oss/kubernetes/pause", "3.9", "pause"},
		"workload":                 {"flexlab/hello", "1", "hello"},
		"workload, no path at all": {"library/hello", "1", "hello"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := get(t, h, "/v2/"+test.repository+"/manifests/"+test.tag+"?ns=mcr.microsoft.com")
			if kind := types.MediaType(w.Header().Get("Content-Type")); kind != types.OCIManifestSchema1 {
				t.Errorf("media type is %s", kind)
			}
			var m v1.Manifest
			if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil {
				t.Fatal(err)
			}
			var config v1.ConfigFile
			blob := get(t, h, "/v2/"+test.repository+"/blobs/"+m.Config.Digest.String())
			if err := json.Unmarshal(blob.Body.Bytes(), &config); err != nil {
				t.Fatal(err)
			}
			if config.OS != "linux" || config.Architecture != runtime.GOARCH ||
				!slices.Equal(config.Config.Entrypoint, []string{"/" + test.program}) {
				t.Errorf("config is %+v", config)
			}
			if len(m.Layers) != 1 || m.Layers[0].MediaType != types.OCIUncompressedLayer ||
				m.Config.MediaType != types.OCIConfigJSON {
				t.Fatalf("manifest is %+v", m)
			}
			layer := get(t, h, "/v2/"+test.repository+"/blobs/"+m.Layers[0].Digest.String()).Body.Bytes()
			header, text := only(t, layer)
			if header.Name != test.program || header.Mode != 0o755 || text != "I am "+test.program {
				t.Errorf("the layer holds %s, mode %o, %q", header.Name, header.Mode, text)
			}
		})
	}
}

// only returns the only file of a layer.
func only(t *testing.T, layer []byte) (*tar.Header, string) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(layer))
	header, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("the layer has a second entry (%v)", err)
	}
	return header, string(text)
}

// TestOther pulls an image that the caller has added: tools in the lower layer, the program above.
func TestOther(t *testing.T) {
	dir, tools := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(dir, "pause"): "p", filepath.Join(dir, "hello"): "h",
		filepath.Join(dir, "kube-proxy"):    "I am kube-proxy",
		filepath.Join(tools, "usr/bin/nft"): "I am nft",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nft", filepath.Join(tools, "usr/bin/other")); err != nil {
		t.Fatal(err)
	}
	h, err := New(t.Context(), dir, KubeProxy("1.2.3", filepath.Join(dir, "kube-proxy"), tools))
	if err != nil {
		t.Fatal(err)
	}
	var m v1.Manifest
	body := get(t, h, "/v2/kube-proxy/manifests/v1.2.3").Body.Bytes()
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range m.Layers {
		layer := get(t, h, "/v2/kube-proxy/blobs/"+l.Digest.String()).Body
		r := tar.NewReader(layer)
		for {
			header, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, header.Name+" "+header.Linkname+string(text))
		}
	}
	want := []string{"usr/bin/nft I am nft", "usr/bin/other nft",
		"usr/local/bin/kube-proxy I am kube-proxy"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestImagesAreDeterministic(t *testing.T) {
	one := get(t, stocked(t), "/v2/flexlab/hello/manifests/1").Header().Get("Docker-Content-Digest")
	two := get(t, stocked(t), "/v2/flexlab/hello/manifests/1").Header().Get("Docker-Content-Digest")
	if one != two || one == "" {
		t.Errorf("digests are %q and %q", one, two)
	}
}

func TestRegistryIsReadOnly(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v2/flexlab/hello/blobs/uploads/", nil)
	ReadOnly(stocked(t)).ServeHTTP(w, r)
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a push was answered with %d", w.Code)
	}
}

// An image is pushed to another process's registry, or an error returned if that cannot be reached.
func TestPush(t *testing.T) {
	h := stocked(t)
	server := httptest.NewServer(h)
	image, err := oci.Image{Architecture: "amd64", Layers: []oci.Layer{{
		Pack: func(p *oci.Packer) error { return p.File("a", []byte("b"), 0o644) }}}}.Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := Push(t.Context(), server.URL, "flexlab/pushed:1", image); err != nil {
		t.Fatal(err)
	}
	want, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	w := get(t, ReadOnly(h), "/v2/flexlab/pushed/manifests/1")
	if got := w.Header().Get("Docker-Content-Digest"); got != want.String() {
		t.Errorf("it is %s, want %s", got, want)
	}
	server.Close()
	if err := Push(t.Context(), server.URL, "flexlab/pushed:1", image); err == nil ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a registry that is not there: %v", err)
	}
}

func TestNewWithoutPrograms(t *testing.T) {
	if _, err := New(t.Context(), t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), "cannot make the image of pause") {
		t.Errorf("error is %v", err)
	}
}

// TestPrograms builds the real programs and runs the workload's, except for its fixed port.
func TestPrograms(t *testing.T) {
	c, err := Component()
	if err != nil {
		t.Fatal(err)
	}
	builder := component.Builder{Cache: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	dir, err := builder.Build(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/good" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, "answer\n")
	}))
	defer server.Close()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		out  string
		ok   bool
	}{
		"host name": {[]string{"hostname"}, host + "\n", true},
		"client":    {[]string{"client", server.URL + "/good"}, "answer\n", true},
		"bad":       {[]string{"client", server.URL + "/bad"}, "answer\n", false},
		"address":   {[]string{"resolve", "127.0.0.1"}, "127.0.0.1\n", true},
		"usage":     {[]string{"shell"}, "", false},
		"linger":    {[]string{"linger", "1ms", filepath.Join(dir, "times")}, "", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "hello"), test.args...).Output()
			if string(out) != test.out || (err == nil) != test.ok {
				t.Errorf("it printed %q (%v)", out, err)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "pause")); err != nil {
		t.Error(err)
	}
	times, err := os.ReadFile(filepath.Join(dir, "times"))
	if err != nil || !strings.HasPrefix(string(times), "begin ") ||
		!strings.Contains(string(times), "\nend ") {
		t.Errorf("linger wrote %q (%v)", times, err)
	}
}

func TestHostsTOML(t *testing.T) {
	const want = `[host."https://10.77.0.1:5443"]
  capabilities = ["pull", "resolve"]
  ca = "/etc/ssl/lab.pem"
`
	if got := HostsTOML("https://10.77.0.1:5443", "/etc/ssl/lab.pem"); got != want {
		t.Errorf("it is\n%s", got)
	}
	if got := HostsTOML("http://10.77.0.1:5000", ""); strings.Contains(got, "ca =") {
		t.Errorf("it names a CA:\n%s", got)
	}
}

func get(t *testing.T, h http.Handler, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s: status %d: %s", target, w.Code, w.Body)
	}
	return w
}
