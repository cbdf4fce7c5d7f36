package health

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
)

// The conditions stand in the order of their layers, each once.
func TestConditionsAreInTheOrderOfTheirLayers(t *testing.T) {
	layers := []Layer{LayerConfiguration, LayerMachine, LayerNetwork, LayerDNS, LayerClock, LayerTLS,
		LayerCredential, LayerAPIServer, LayerRuntime, LayerKubelet, LayerNode}
	last := 0
	for i, e := range catalogue() {
		layer := slices.Index(layers, e.layer)
		if layer < last || slices.Index(Names(), e.name) != i {
			t.Errorf("%s is out of order", e.name)
		}
		last = layer
	}
}

// Nothing is the cause of its own cause: every finding is shown.
func TestNothingIsLostInACircle(t *testing.T) {
	var all []Diagnosis
	for _, name := range Names() {
		l := layerOf(Condition{Type: name})
		all = append(all, Diagnosis{
			Condition: Condition{Type: name, Status: False}, Layer: l, Verdict: Fault,
		})
	}
	for _, a := range all {
		for _, b := range all {
			if explains(a, b) && explains(b, a) {
				t.Errorf("%s and %s explain each other", a.Type, b.Type)
			}
			if got := inOrder([]Diagnosis{a, b}); a.Type != b.Type && len(got) != 2 {
				t.Errorf("of %s and %s only %v is reported", a.Type, b.Type, got)
			}
		}
	}
	if got := inOrder(slices.Clone(all)); len(got) != len(all) {
		t.Errorf("%d of %d findings are reported", len(got), len(all))
	}
}

// A cause comes before what follows from it, and a mere warning before no error.
func TestCausesComeFirst(t *testing.T) {
	ahead := 10 * time.Minute
	e := Evidence{
		Now:    time.Now(),
		Probe:  Tried(&kube.Fault{Layer: kube.LayerTLS, Message: "not trusted"}),
		Node:   Answered(kube.Node{}, errors.New("no answer")),
		Upkeep: &Upkeep{Upkeep: host.Upkeep{RebootRequired: true}},
		Examined: &Examined{
			Endpoints: Answered([]Endpoint{{URL: "https://api", Needed: true, Cluster: true,
				Reached: kube.Reached{Ahead: &ahead}}}, nil),
		},
	}
	found := slices.DeleteFunc(Examine(e, func(string) bool { return true }),
		func(d Diagnosis) bool { return !d.Found() })
	var names []string
	for _, d := range found {
		names = append(names, d.Type)
	}
	want := []string{ClockAccurate, APIServerReachable, "RebootNotPending"}
	if !slices.Equal(names, want) {
		t.Fatalf("the findings are %v; want %v", names, want)
	}
	if f := found[1].Follows; !slices.Equal(f, []string{ClockAccurate}) {
		t.Errorf("the API server's finding follows from %v", f)
	}
	if r := found[0].Remedies; len(r) == 0 || r[0] != "timedatectl set-ntp true" {
		t.Errorf("the remedies are %v", r)
	}
}

// Where servers disagree about the time it is not this machine's clock that is wrong.
func TestClocksOfServersDiffer(t *testing.T) {
	none, far := time.Duration(0), -time.Hour
	e := Evidence{Examined: &Examined{Endpoints: Answered([]Endpoint{
		{Needed: true, Reached: kube.Reached{Ahead: &none}},
		{Needed: true, Reached: kube.Reached{Ahead: &far}},
	}, nil)}}
	if c := clockAccurate(e); c.Reason != "ServersDiffer" || c.Owner != OwnerCluster {
		t.Errorf("%+v", c)
	}
}

// A remedy that all servers have in common is shown once.
func TestOneRemedyForManyServers(t *testing.T) {
	silent := func(name string) Endpoint {
		return Endpoint{URL: name, Needed: true, Err: &kube.Fault{
			Layer: kube.LayerDNS, Message: name + " does not resolve", Remedy: "check the servers",
		}}
	}
	e := Evidence{Examined: &Examined{Endpoints: Answered([]Endpoint{
		silent("https://a"), silent("https://b"),
	}, nil)}}
	c := namesResolved(e)
	for text, times := range map[string]int{
		"https://a does not resolve": 1, "https://b does not resolve": 1, "check the servers": 1,
	} {
		if n := strings.Count(c.Message, text); n != times {
			t.Errorf("%q is said %d times: %s", text, n, c.Message)
		}
	}
}
