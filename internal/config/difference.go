package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Difference is one setting in which two configurations differ. From and To are nil where it is not
// set.
type Difference struct {
	Path string  `json:"path"`
	From *string `json:"from"`
	To   *string `json:"to"`
}

// Differences are those between two configurations, ordered by path. Secrets are redacted.
func (c Config) Differences(to Config) ([]Difference, error) {
	before, err := c.redacted()
	if err != nil {
		return nil, err
	}
	after, err := to.redacted()
	if err != nil {
		return nil, err
	}
	was := c.secrets()
	for path, secret := range to.secrets() {
		if former := was[path]; former != "" && secret != former {
			put(after, path, secret.String()+", another one")
		}
	}
	return Differences(before, after), nil
}

// secrets are those that are set, by path.
func (c Config) secrets() map[string]Secret {
	found := map[string]Secret{}
	for _, l := range leaves(&c) {
		if secret, ok := l.value.Interface().(Secret); ok && secret != "" {
			found[l.path] = secret
		}
	}
	return found
}

// redacted is the configuration as JSON, without its secrets.
func (c Config) redacted() (map[string]any, error) {
	hidden, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("internal error: %w", err)
	}
	return decodeObject(hidden)
}

// Differences are those between two documents, ordered by path: node.maxPods, node.labels["a.b/c"].
// A list is one value.
func Differences(from, to map[string]any) []Difference {
	list := differences(nil, "", from, to)
	slices.SortFunc(list, func(a, b Difference) int { return strings.Compare(a.Path, b.Path) })
	return list
}

func differences(list []Difference, at string, from, to map[string]any) []Difference {
	names := map[string]any{}
	maps.Copy(names, from)
	maps.Copy(names, to)
	for name := range names {
		before, was := from[name]
		after, is := to[name]
		below, _ := before.(map[string]any)
		above, _ := after.(map[string]any)
		path := member(at, name)
		switch {
		case (below != nil || !was) && (above != nil || !is) && (below != nil || above != nil):
			list = differences(list, path, below, above)
		case was != is || !reflect.DeepEqual(before, after):
			list = append(list, Difference{path, shownValue(before, was), shownValue(after, is)})
		}
	}
	return list
}

// shownValue is a string as it is, and anything else as JSON; nil of what is not there.
func shownValue(value any, there bool) *string {
	if !there {
		return nil
	}
	text, ok := value.(string)
	if !ok {
		encoded, _ := json.Marshal(value) // what was decoded encodes
		text = string(encoded)
	}
	return &text
}
