package stories

import (
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/support"
)

// endpoints lists the endpoints that the configuration needs, and the reasons.
func TestEndpoints(t *testing.T) {
	w := newWorld(t)
	w.config.Artifacts.Directory = ""
	w.config.Artifacts.Mirror = "https://mirror.example/flex"
	list, err := support.Endpoints(t.Context(), w.agent(), support.Given{
		Input: &change.Input{Config: w.config, Origin: "file"},
	})
	if err != nil {
		t.Fatal(err)
	}
	type line struct {
		needed, answers bool
	}
	got := make(map[string]line)
	for _, e := range list {
		got[e.URL+" "+e.Purpose] = line{e.Needed, e.Err == nil}
	}
	for what, want := range map[string]line{
		w.cluster.URL + " the API server":            {true, true},
		"https://mirror.example programs (mirror)":   {true, false},
		"https://dl.k8s.io programs":                 {false, false},
		"https://github.com programs":                {false, false},
		"https://mcr.microsoft.com container images": {true, false},
	} {
		if is, ok := got[what]; !ok || is != want {
			t.Errorf("%s: %+v, want %+v; all are %v", what, is, want, got)
		}
	}
}

// A caller who may read neither the node's records nor its configuration gets an error that names
// that, and not the lack of a node.
func TestEndpointsWithoutRoot(t *testing.T) {
	w := newWorld(t)
	_, err := support.Endpoints(t.Context(), w.agent(), support.Given{Unprivileged: true})
	if err == nil || !strings.Contains(err.Error(), "run it with sudo") {
		t.Errorf("the error is %v", err)
	}
}
