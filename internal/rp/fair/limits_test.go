package fair

import (
	"encoding/json"
	"strings"
	"testing"
)

// Settings are checked, and omitted ones keep their defaults.
func TestLimits(t *testing.T) {
	if problems := DefaultLimits().Check(); problems != nil {
		t.Error(problems)
	}
	l := DefaultLimits()
	must(0, json.Unmarshal([]byte(`{
		"exceptions": {"x": 5, "y": 0, "z": -1},
		"quotas": {"default": {"nodes": 0}, "subscriptions": {"s": {"tokens": -1}}},
		"connections": {"max": 0}
	}`), &l))
	text := strings.Join(l.Check(), "\n")
	for _, path := range []string{
		"exceptions[y]:", "exceptions[z]:", "quotas.default:", "quotas.subscriptions[s]:",
		"connections:",
	} {
		if !strings.Contains(text, path) {
			t.Errorf("nothing is said of %s", path)
		}
	}
	equal(t, "the lines that are said", strings.Count(text, "\n"), 4)
	if l.Connections.PerAddress != 12_288 || l.Quotas.Default.Clusters != 100 {
		t.Errorf("defaults are lost: %+v", l)
	}
}

// A claim counts until the count includes it.
func TestClaims(t *testing.T) {
	var c Claims
	used, revision := 3, int64(10)
	count := func() (int, int64) { return used, revision }
	take := func(key string) bool {
		_, ok := c.Take(Nodes, "s", key, 5, count)
		return ok
	}
	for i, key := range []string{"a", "a", "b", "c"} { // a second claim of a counts once
		if took := take(key); took != (key != "c") {
			t.Fatalf("claim %d, of %s: %t", i, key, took)
		}
	}
	if _, ok := c.Take(Nodes, "other", "c", 5, count); !ok {
		t.Error("one subscription's claims count for another")
	}
	c.Done(Nodes, "s", "b", 0) // it was not made
	if !take("c") || take("d") {
		t.Error("what was not made counts, or what is being made does not")
	}
	c.Done(Nodes, "s", "a", 11)
	c.Done(Nodes, "s", "c", 12)
	used, revision = 4, 11
	equal(t, "what is not counted yet is forgotten", take("d"), false)
	used, revision = 5, 12
	equal(t, "more than the quota is taken", take("d"), false)
	used, revision = 4, 13
	equal(t, "what is free is taken", take("d"), true)
}
