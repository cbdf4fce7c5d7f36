package flexnode

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Diff is what differs between two configurations, ordered by path. Paths are as those of the
// agent's messages: node.maxPods, node.labels["a.b/c"]. A list is one value.
func Diff(from, to map[string]any) []api.Change {
	changes := diff([]api.Change{}, "", from, to)
	slices.SortFunc(changes, func(a, b api.Change) int { return strings.Compare(a.Path, b.Path) })
	return changes
}

func diff(changes []api.Change, at string, from, to object) []api.Change {
	names := maps.Clone(from)
	if names == nil {
		names = object{}
	}
	maps.Copy(names, to)
	for name := range names {
		before, was := from[name]
		after, is := to[name]
		below, path := subobject(before), within(at, name)
		above := subobject(after)
		switch {
		case (below != nil || !was) && (above != nil || !is) && (below != nil || above != nil):
			changes = diff(changes, path, below, above)
		case was != is || !reflect.DeepEqual(before, after):
			changes = append(changes, api.Change{
				Path: path, From: shownValue(before, was), To: shownValue(after, is),
			})
		}
	}
	return changes
}

func subobject(value any) object {
	o, _ := value.(object)
	return o
}

// within is the path of a member.
func within(at, name string) string {
	plain := name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_'
	})
	switch {
	case !plain:
		quoted, _ := json.Marshal(name) // a string encodes
		return at + "[" + string(quoted) + "]"
	case at == "":
		return name
	}
	return at + "." + name
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
