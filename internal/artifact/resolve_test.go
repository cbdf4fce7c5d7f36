package artifact

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/release"
)

func TestUpstream(t *testing.T) {
	const (
		github     = "https://github.com/"
		containerd = github + "containerd/containerd/releases/download/v1.2.3/" +
			"containerd-1.2.3-linux-arm64.tar.gz"
		plugins = github + "containernetworking/plugins/releases/download/v1.2.3/" +
			"cni-plugins-linux-arm64-v1.2.3.tgz"
		detector = github + "kubernetes/node-problem-detector/releases/download/v1.2.3/" +
			"node-problem-detector-v1.2.3-linux_arm64.tar.gz"
	)
	want := map[Name][2]string{
		Kubelet: {"https://dl.k8s.io/v1.2.3/bin/linux/arm64/kubelet",
			"https://dl.k8s.io/v1.2.3/bin/linux/arm64/kubelet.sha256"},
		Kubectl: {"https://dl.k8s.io/v1.2.3/bin/linux/arm64/kubectl",
			"https://dl.k8s.io/v1.2.3/bin/linux/arm64/kubectl.sha256"},
		Kubeadm: {"https://dl.k8s.io/v1.2.3/bin/linux/arm64/kubeadm",
			"https://dl.k8s.io/v1.2.3/bin/linux/arm64/kubeadm.sha256"},
		Containerd: {containerd, containerd + ".sha256sum"},
		Runc: {"https://github.com/opencontainers/runc/releases/download/v1.2.3/runc.arm64",
			"https://github.com/opencontainers/runc/releases/download/v1.2.3/runc.sha256sum"},
		CNIPlugins: {plugins, plugins + ".sha256"},
		NPD:        {detector, ""},
	}
	got := map[Name][2]string{}
	for _, name := range release.Names() {
		n := Name(name)
		at := projects[n].upstream("1.2.3", "arm64")
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		got[n] = [2]string{at, projects[n].checksums(*u)}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	overrides := map[string]config.Override{
		"runc": {URL: "https://a.example/any"}, "runc@1.2.3": {URL: "https://a.example/1.2.3"}}
	for version, want := range map[string]string{
		"v1.2.3": "https://a.example/1.2.3", "1.2.4": "https://a.example/any"} {
		spec := Artifact{Name: Runc, Version: version, Arch: "arm64"}
		if got := Upstream(spec, overrides); got != want {
			t.Errorf("runc %s is at %s, want %s", version, got, want)
		}
	}
}

// Every artifact can be pinned, and what is pinned can be asked for.
func TestPins(t *testing.T) {
	seen := map[string]release.Pin{}
	for _, p := range release.Pins() {
		if err := (Artifact{Name: Name(p.Name), Version: p.Version, Arch: p.Arch}).check(); err != nil {
			t.Error(err)
		}
		if !isDigest(p.Digest) || (len(p.Digest) == 128) != (Name(p.Name) == NPD) {
			t.Errorf("%v is not a digest of the expected kind", p)
		}
		if other, ok := seen[p.Digest]; ok {
			t.Errorf("%v and %v share a digest", p, other)
		}
		seen[p.Digest] = p
	}
	for _, n := range release.Names() {
		if len(release.Pinned(n)) == 0 {
			t.Errorf("no version of %s is pinned on both architectures", n)
		}
	}
}

func TestParseChecksum(t *testing.T) {
	one, two := sha([]byte("one")), sha([]byte("two"))
	tests := []struct {
		name, text, want, err string
	}{
		{"bare", one, one, ""},
		{"bare in capitals, with newline", strings.ToUpper(one) + "\n", one, ""},
		{"one line", one + "  kubelet\n", one, ""},
		{"binary mark", one + " *kubelet", one, ""},
		{"dot", one + "  ./kubelet\r\n", one, ""},
		{"one of several", two + "  kubelet.exe\n\n" + one + "  kubelet\n", one, ""},
		{"empty", "", "", "does not name"},
		{"another file", one + "  kubectl\n", "", "does not name"},
		{"a file of that name elsewhere", one + "  other/kubelet\n", "", "does not name"},
		{"twice", one + "  kubelet\n" + two + "  kubelet\n", "", "twice"},
		{"too short", one[1:] + "  kubelet\n", "", "not a list"},
		{"no hex", "z" + one[1:] + "  kubelet\n", "", "not a list"},
		{"one space", one + " kubelet\n", "", "not a list"},
		{"html", "<html>" + one + "  kubelet</html>", "", "not a list"},
		{"signed", "-----BEGIN PGP SIGNED MESSAGE-----\n" + one + "  kubelet\n", "", "not a list"},
		{"sha512", one + one, "", "not a list"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseChecksum(tt.text, "kubelet")
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil &&
				!strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	sum := sha([]byte("file"))
	hosts := map[string]http.HandlerFunc{
		"dl.k8s.io": sequence(status(503),
			paths(map[string]http.HandlerFunc{"kubelet.sha256": serve([]byte(sum), "")})),
		"github.com": paths(map[string]http.HandlerFunc{
			"runc.sha256sum": serve([]byte(sum+"  runc.amd64\n"+sha([]byte(
				"arm"))+"  runc.arm64\n"), ""),
		}),
		"mirror": paths(map[string]http.HandlerFunc{
			"cni-plugins-linux-amd64-v9.9.9.tgz.sha256": page("text/html"),
			"containerd-9.9.9-linux-amd64.tar.gz.sha256sum": serve(
				[]byte(sum+"  containerd-9.9.9-linux-amd64.tar.gz\n"), ""),
		}),
	}
	tests := []struct {
		name     string
		spec     Artifact
		override config.Override
		of       string // the key of the override; default the artifact's name
		id, url  string
		mirrors  bool // are trusted
		err      string
	}{
		{name: "pinned", spec: Artifact{Name: Kubelet, Version: "v1.34.4"},
			id:  release.Pinning("kubelet", "1.34.4", "amd64").Digest,
			url: projects[Kubelet].upstream("1.34.4", "amd64")},
		{name: "pinned elsewhere", spec: Artifact{Name: Runc, Version: "1.3.4",
			URL: "https://own/runc"}, id: release.Pinning("runc", "1.3.4", "amd64").Digest,
			url: "https://own/runc"},
		{name: "published, second try", spec: Artifact{Name: Kubelet, Version: "1.99.0"}, id: sum,
			url: projects[Kubelet].upstream("1.99.0", "amd64")},
		{name: "published for all architectures", spec: Artifact{Name: Runc, Version: "9.9.9"}, id: sum,
			url: projects[Runc].upstream("9.9.9", "amd64")},
		{name: "published, on the mirror", spec: Artifact{Name: Containerd, Version: "9.9.9"}, id: sum,
			url: projects[Containerd].upstream("9.9.9", "amd64"), mirrors: true},
		{name: "published by the mirror alone", spec: Artifact{Name: Containerd, Version: "9.9.9"},
			err: "cannot learn the published checksum"},
		{name: "published nowhere", mirrors: true, spec: Artifact{Name: CNIPlugins, Version: "9.9.9"},
			err: "file not found"},
		{name: "published over http only",
			spec: Artifact{Name: Runc, Version: "9.9.9", URL: "http://github.com/runc.amd64"},
			err:  "only over https"},
		{name: "never published", spec: Artifact{Name: NPD, Version: "9.9.9"},
			err: "use a version that is known here (1.34.0) or set " +
				"artifacts.overrides.node-problem-detector.sha256"},
		{name: "override", spec: Artifact{Name: NPD, Version: "9.9.9"},
			override: config.Override{SHA256: sum, URL: "https://own/npd.tgz"},
			id:       sum, url: "https://own/npd.tgz"},
		{name: "override without url", spec: Artifact{Name: Kubelet, Version: "1.34.4"},
			override: config.Override{SHA256: sum}, id: sum,
			url: projects[Kubelet].upstream("1.34.4", "amd64")},
		{name: "override of the version", spec: Artifact{Name: Kubelet, Version: "v1.34.4"},
			override: config.Override{SHA256: sum}, of: "kubelet@1.34.4", id: sum,
			url: projects[Kubelet].upstream("1.34.4", "amd64")},
		{name: "override of another version", spec: Artifact{Name: Kubelet, Version: "1.34.4"},
			override: config.Override{SHA256: sum}, of: "kubelet@1.34.3",
			id:  release.Pinning("kubelet", "1.34.4", "amd64").Digest,
			url: projects[Kubelet].upstream("1.34.4", "amd64")},
		{name: "bad version", spec: Artifact{Name: Kubelet, Version: "1.34.4/../../x"},
			err: "not of the form"},
		{name: "bad architecture", spec: Artifact{Name: Kubelet, Version: "1.34.4", Arch: "s390x"},
			err: "only amd64 and arm64"},
		{name: "unknown name", spec: Artifact{Name: "etcd", Version: "1.34.4"},
			err: "unknown artifact"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, hosts)
				s := Source{Mirrors: []string{"https://mirror"}, HTTP: n.client(t),
					TrustMirrors: tt.mirrors}
				if tt.spec.Arch == "" {
					tt.spec.Arch = "amd64"
				}
				key := string(tt.spec.Name)
				if tt.of != "" {
					key = tt.of
				}
				overrides := map[string]config.Override{key: tt.override}
				arts, err := Resolve(t.Context(), s, []Artifact{tt.spec}, overrides)
				if tt.err != "" {
					if err == nil || !strings.Contains(err.Error(), tt.err) {
						t.Errorf("got %v, want %q", err, tt.err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				want := Artifact{
					Name: tt.spec.Name, Version: strings.TrimPrefix(tt.spec.Version, "v"),
					Arch: "amd64", URL: tt.url, ID: tt.id,
					Archive: projects[tt.spec.Name].archive, Late: projects[tt.spec.Name].late,
				}
				if diff := cmp.Diff([]Artifact{want}, arts); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestResolveFromDirectory(t *testing.T) {
	dir, sum := t.TempDir(), sha([]byte("file"))
	at := filepath.Join(dir, "dl.k8s.io", "v1.99.0", "bin", "linux", "amd64")
	os.MkdirAll(at, 0o700)
	os.WriteFile(filepath.Join(at, "kubelet.sha256"), []byte(sum), 0o600)
	spec := Artifact{Name: Kubelet, Version: "1.99.0", Arch: "amd64"}
	arts, err := Resolve(t.Context(), Source{Directory: dir}, []Artifact{spec}, nil)
	if err != nil || arts[0].ID != sum {
		t.Errorf("got %v, %v", arts, err)
	}
	spec.Name = Kubectl
	_, err = Resolve(t.Context(), Source{Directory: dir}, []Artifact{spec}, nil)
	if err == nil || !strings.Contains(err.Error(),
		filepath.Join(at, "kubectl.sha256")+": file not found in artifacts.directory") {
		t.Errorf("got %v", err)
	}
	spec.Name = Kubelet
	anyone := func(file string) error { return fmt.Errorf("any user can change %s", file) }
	_, err = Resolve(t.Context(), Source{Directory: dir, Trusted: anyone}, []Artifact{spec}, nil)
	if err == nil || !strings.Contains(err.Error(), "any user can change "+at+"/kubelet.sha256") {
		t.Errorf("a checksum that any user can change: %v", err)
	}
}

func TestResolveReportsEveryError(t *testing.T) {
	_, err := Resolve(t.Context(), Source{}, []Artifact{
		{Name: NPD, Version: "9.9.9", Arch: "amd64"},
		{Name: Runc, Version: "latest", Arch: "amd64"},
	}, nil)
	if err == nil || !strings.Contains(err.Error(), "node-problem-detector") ||
		!strings.Contains(err.Error(), "runc") {
		t.Errorf("got %v", err)
	}
}

func TestResolveRefusesOneDigestForTwo(t *testing.T) {
	o := config.Override{SHA256: sha(nil)}
	_, err := Resolve(t.Context(), Source{}, []Artifact{
		{Name: Kubelet, Version: "1.2.3", Arch: "amd64"},
		{Name: Kubectl, Version: "1.2.3", Arch: "amd64"},
	}, map[string]config.Override{"kubelet": o, "kubectl": o})
	if err == nil || !strings.Contains(err.Error(),
		"one digest for kubelet 1.2.3 and kubectl 1.2.3") {
		t.Errorf("got %v", err)
	}
}

func TestDirectory(t *testing.T) {
	b := noise(1, 500_000)
	a := binary(Kubelet, b)
	arc, targz, plain := archive(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, "upstream", "v1.2.3", name) }
	tests := []struct {
		name  string
		art   Artifact
		files map[string][]byte
		cause Cause
		file  string
	}{
		{"binary", a, map[string][]byte{"kubelet": b}, "", "kubelet"},
		{"binary as zstd only", a, map[string][]byte{"kubelet.zst": zst(b)}, "", "kubelet"},
		{"archive", arc, map[string][]byte{"containerd.tar.gz": targz}, "", "bin/containerd"},
		{"archive as zstd only", arc, map[string][]byte{"containerd.tar.zst": zst(plain)}, "",
			"bin/containerd"},
		{"nothing", a, nil, NotFound, ""},
		{"wrong bytes", a, map[string][]byte{"kubelet": noise(2, 500_000)}, Digest, ""},
		{"wrong archive", arc, map[string][]byte{"containerd.tar.gz": targz[:1000]}, Digest, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			os.RemoveAll(filepath.Join(dir, "upstream"))
			os.MkdirAll(at(""), 0o700)
			for name, content := range tt.files {
				if err := os.WriteFile(at(name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, mirrors, map[string]http.HandlerFunc{"upstream": serve(b, ""),
					"mirror": serve(b, "")})
				r.Source.Directory = dir
				err := r.Run(t.Context(), []Artifact{tt.art})
				if n := len(r.net.requests()); n > 0 {
					t.Errorf("%d requests in spite of the directory", n)
				}
				if tt.cause != "" {
					if e := new(Error); !errors.As(err, &e) || e.Cause != tt.cause ||
						!strings.HasPrefix(e.URL, dir) {
						t.Errorf("got %v", err)
					}
					if present(r.Store, tt.art.ID) || len(r.leftovers(t)) > 0 {
						t.Error("something is in the store")
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if files := files(t, r.Store, tt.art.ID); len(files) == 0 ||
					files[len(files)-1] != tt.file {
					t.Errorf("files: %v", files)
				}
				if left := r.leftovers(t); len(left) > 0 {
					t.Errorf("left over: %v", left)
				}
			})
		})
	}
}

func TestHosts(t *testing.T) {
	s := Source{Mirrors: []string{"https://mirror/x"}}
	arts := []Artifact{binary(Kubelet, nil), binary(Runc, nil), binary(Kubectl, nil)}
	if diff := cmp.Diff([]string{"mirror", "upstream"}, Hosts(arts, s)); diff != "" {
		t.Errorf("hosts %s", diff)
	}
	s.Directory = "/media"
	if hosts := Hosts(arts, s); len(hosts) != 0 {
		t.Errorf("a directory needs no hosts, got %v", hosts)
	}
}

// Places that accept and are silent take minutes: each try that failed is progress.
func TestResolveTellsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		n := newNetwork(t, map[string]http.HandlerFunc{"mirror": silent, "dl.k8s.io": silent})
		last, longest, calls := time.Now(), time.Duration(0), 0
		s := Source{Mirrors: []string{"https://mirror"}, HTTP: n.client(t), Progress: func() {
			longest, calls = max(longest, time.Since(last)), calls+1
			last = time.Now()
		}}
		spec := Artifact{Name: Kubelet, Version: "1.2.3", Arch: "amd64"}
		_, err := Resolve(t.Context(), s, []Artifact{spec}, nil)
		longest = max(longest, time.Since(last))
		if most := checksumTimeout + 45*time.Second; err == nil || calls == 0 || longest > most {
			t.Errorf("silent for %s, %d calls; %v", longest, calls, err)
		}
		s.Progress = nil
		if _, err := Resolve(t.Context(), s, []Artifact{spec}, nil); err == nil {
			t.Error("places that are silent gave a checksum")
		}
	})
}

func TestPlaces(t *testing.T) {
	s := NewSource(config.Artifacts{Mirror: "https://m1/a/", Mirrors: []string{"https://m2"}}, nil)
	a := Artifact{Name: Kubelet, URL: "https://up:8443/../x/./kubelet?sig=secret"}
	list, err := s.candidates(a)
	var got []string
	for _, c := range list {
		got = append(got, c.url)
	}
	want := []string{
		"https://m1/a/up:8443/x/kubelet.zst", "https://m1/a/up:8443/x/kubelet",
		"https://m2/up:8443/x/kubelet.zst", "https://m2/up:8443/x/kubelet",
		"https://up:8443/../x/./kubelet?sig=secret",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got := list[4].String(); strings.Contains(got, "secret") {
		t.Errorf("shown as %s", got)
	}
	for _, bad := range []string{"kubelet", "file:///etc/shadow", "https://", "https://a\x00b/"} {
		if _, err := s.places(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
