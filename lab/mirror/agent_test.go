package mirror

import (
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/artifact"
	releases "github.com/Azure/AKSFlexNode/internal/release"
)

// TestAgentFindsTheArtifacts checks the layout with the agent: from a copy in a directory, and from
// the published checksums alone, it finds each file at the mirror's path.
func TestAgentFindsTheArtifacts(t *testing.T) {
	c := packed(t, time.Unix(1, 0))
	dir := filepath.Join(t.TempDir(), "air-gapped")
	if err := c.Directory(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, got := range resolved(t, c, artifact.Source{Directory: dir}) {
		want, err := c.Artifact(string(got.Name), version)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(got.URL)
		if err != nil {
			t.Fatal(err)
		}
		if path := "/" + u.Host + u.Path; path != want.Path || got.ID != want.SHA256 {
			t.Errorf("the agent expects %s with digest %s; the mirror has %s with %s",
				path, got.ID, want.Path, want.SHA256)
		}
		text := read(t, filepath.Join(dir, filepath.FromSlash(want.Path)))
		if digest(text) != want.SHA256 {
			t.Errorf("the copy of %s differs", want.Path)
		}
	}
}

// resolved returns the artifacts that the agent resolves from the published checksums;
// node-problem-detector publishes no usable ones.
func resolved(t *testing.T, c Catalog, s artifact.Source) []artifact.Artifact {
	t.Helper()
	overrides, err := c.Overrides(map[string]string{"node-problem-detector": version})
	if err != nil {
		t.Fatal(err)
	}
	var wanted []artifact.Artifact
	for _, n := range releases.Names() {
		name := artifact.Name(n)
		wanted = append(wanted, artifact.Artifact{Name: name, Version: version, Arch: runtime.GOARCH})
	}
	list, err := artifact.Resolve(t.Context(), s, wanted, overrides)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestAgentFetches lets the agent fetch everything from a mirror with each fault; all of them are
// temporary or avoidable.
func TestAgentFetches(t *testing.T) {
	c := packed(t, time.Unix(1, 0))
	tests := map[string][]Fault{
		"healthy":            nil,
		"cut":                {{Path: "kubelet*", Kind: Cut, After: 10_000, Times: 3}},
		"cut without ranges": {{Path: "kubelet*", Kind: Cut, After: 20_000, Times: 1}, {Kind: NoRange}},
		"corrupt variant":    {{Path: "*.zst", Kind: Corrupt, After: 20_000}},
		"status": {{Path: "kubelet*", Kind: Status, Times: 2},
			{Kind: Status, Status: 503, Times: 2}},
		"captive portal": {{Path: "kubelet*", Kind: HTML, Times: 1}},
	}
	for name, faults := range tests {
		t.Run(name, func(t *testing.T) {
			m := New(c)
			arts, f := fetcher(t, m)
			if err := m.Set(Knobs{Faults: faults}); err != nil {
				t.Fatal(err)
			}
			if err := f.Start(t.Context()).WaitAll(t.Context(), nil, nil); err != nil {
				t.Fatal(err)
			}
			for _, a := range arts {
				if a.Archive {
					continue
				}
				if text := read(t, filepath.Join(f.Store, a.ID, string(a.Name))); digest(text) != a.ID {
					t.Errorf("a wrong %s was installed", a.Name)
				}
			}
			if faults == nil {
				onlyVariants(t, m)
			}
		})
	}
}

func TestAgentRefusesWrongBytes(t *testing.T) {
	m := New(packed(t, time.Unix(1, 0)))
	arts, f := fetcher(t, m)
	corrupt := Knobs{Faults: []Fault{{Path: "kubelet*", Kind: Corrupt, After: 20_000}}}
	if err := m.Set(corrupt); err != nil {
		t.Fatal(err)
	}
	d := f.Start(t.Context())
	d.Idle(t.Context())
	err := d.WaitAll(t.Context(), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("error is %v", err)
	}
	for _, a := range arts {
		_, err := os.Stat(filepath.Join(f.Store, a.ID))
		if wrong := a.Name == artifact.Kubelet; wrong == (err == nil) {
			t.Errorf("%s is in the store: %v", a.Name, err == nil)
		}
	}
}

// fetcher returns the resolved artifacts and an agent's Fetcher with an empty store that uses only
// this mirror.
func fetcher(t *testing.T, m *Mirror) ([]artifact.Artifact, *artifact.Fetcher) {
	t.Helper()
	s := started(t, m)
	source := artifact.Source{
		Mirrors: []string{s.URL}, TrustMirrors: true,
		HTTP: &http.Client{Transport: onlyTo{s.Client().Transport, s.URL}},
	}
	arts := resolved(t, m.Catalog(), source)
	m.Reset()
	return arts, &artifact.Fetcher{Store: t.TempDir(), Artifacts: arts, Source: source}
}

// onlyVariants checks that the plain files of programs were not fetched, as the mirror has shorter
// variants.
func onlyVariants(t *testing.T, m *Mirror) {
	t.Helper()
	for path, count := range m.Counts() {
		if count.Bytes > 0 && strings.HasPrefix(path, "/dl.k8s.io/") && !strings.HasSuffix(path, ".zst") {
			t.Errorf("%s was fetched although there is a zstd variant", path)
		}
	}
}

// onlyTo blocks requests to other servers.
type onlyTo struct {
	http.RoundTripper
	base string
}

func (o onlyTo) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(r.URL.String(), o.base+"/") {
		return nil, &artifact.Error{Cause: artifact.Forbidden,
			Err: errors.New("there is no other network")}
	}
	return o.RoundTripper.RoundTrip(r)
}
