package flexnode

import (
	"slices"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Filter chooses nodes. Its text is terms with " and " between them:
//
//	PROPERTY eq 'VALUE'   or   PROPERTY ne 'VALUE'
//
// where a property is one of state, provisioningState, versions/COMPONENT (desired),
// components/COMPONENT (running), conditions/TYPE (the status), conditions/TYPE/reason and
// labels['NAME']. A quote in a value or name is doubled. A missing property equals the empty text.
type Filter struct{ terms []term }

type term struct {
	// place is the property up to the first "/" or "[", name what follows it.
	place, name string
	unequal     bool
	value       string
}

const (
	maxTerms  = 8
	maxFilter = 1024
)

// ReadFilter reads a filter; "" chooses all.
func ReadFilter(text string) (Filter, Problems) {
	var f Filter
	const at = "$filter"
	refuse := func(why string) (Filter, Problems) {
		return Filter{}, Problems{{at, why + " See the API's documentation of $filter."}}
	}
	if len(text) > maxFilter {
		return refuse("The filter is too long.")
	}
	for rest := strings.TrimSpace(text); rest != ""; {
		t, after, why := readTerm(rest)
		if why != "" {
			return refuse(why)
		}
		if f.terms = append(f.terms, t); len(f.terms) > maxTerms {
			return refuse("The filter has too many terms.")
		}
		more, ok := strings.CutPrefix(after, " and ")
		if after != "" && (!ok || strings.TrimSpace(more) == "") {
			return refuse("A term may be followed only by ' and ' and another term, not by '" +
				shorten(after) + "'.")
		}
		rest = strings.TrimSpace(more)
	}
	return f, nil
}

// readTerm reads one term. It returns the rest of the text, or the reason that it is no term.
func readTerm(text string) (t term, rest, why string) {
	if t.place, t.name, rest, why = readProperty(text); why != "" {
		return t, "", why
	}
	operator, after, _ := strings.Cut(strings.TrimPrefix(rest, " "), " ")
	switch {
	case operator == "ne":
		t.unequal = true
	case operator != "eq":
		return t, "", "The operators are eq and ne; '" + shorten(operator) + "' is none."
	}
	var ok bool
	if t.value, rest, ok = readQuoted(after); !ok {
		return t, "", "A value is in single quotes."
	}
	if t.place == "state" && !slices.Contains(States, t.value) {
		return t, "", "A state is one of " + strings.Join(States, ", ") + "."
	}
	return t, rest, ""
}

func readProperty(text string) (place, name, rest, why string) {
	if label, ok := strings.CutPrefix(text, "labels["); ok {
		name, rest, ok = readQuoted(label)
		if rest, closed := strings.CutPrefix(rest, "]"); ok && closed && name != "" {
			return "labels", name, rest, ""
		}
		return "", "", "", "A label is written labels['NAME']."
	}
	property, rest, _ := strings.Cut(text, " ")
	place, name, _ = strings.Cut(property, "/")
	switch {
	case place == "state" && property == place, place == "provisioningState" && property == place:
	case place == "versions" && isComponent(name, everyWanted),
		place == "components" && isComponent(name, everyRunning):
	case place == "conditions" && isConditionType(strings.TrimSuffix(name, "/reason")) && name != "":
	default:
		return "", "", "", "The property '" + shorten(property) + "' is not known."
	}
	return place, name, rest, ""
}

// everyWanted and everyRunning have a version for each component.
var (
	everyWanted = wantedVersions(api.Versions{
		Kubernetes: "x", Containerd: "x", Runc: "x", CNI: "x", NPD: "x",
	})
	everyRunning = runningVersions(api.Components{
		Kubelet: "x", Containerd: "x", Runc: "x", CNI: "x", NPD: "x", Agent: "x", Kernel: "x",
		OS: "x",
	})
)

func isComponent(name string, among []api.VersionCount) bool {
	return slices.ContainsFunc(among, func(v api.VersionCount) bool { return v.Component == name })
}

// readQuoted reads a text in single quotes, and returns the rest.
func readQuoted(text string) (value, rest string, ok bool) {
	rest, ok = strings.CutPrefix(text, "'")
	for ok {
		var part string
		part, rest, ok = strings.Cut(rest, "'")
		value += part
		after, doubled := strings.CutPrefix(rest, "'")
		if !doubled {
			return value, rest, ok
		}
		value, rest = value+"'", after
	}
	return "", "", false
}

// All reports whether the filter chooses all nodes.
func (f Filter) All() bool { return len(f.terms) == 0 }

// Chooses reports whether the filter may choose nodes of a class; it ignores labels.
func (f Filter) Chooses(c *Class) bool {
	return !slices.ContainsFunc(f.terms, func(t term) bool {
		return t.place != "labels" && t.holds(c) == t.unequal
	})
}

// ChoosesLabels reports whether the filter may choose a node with labels.
func (f Filter) ChoosesLabels(labels map[string]string) bool {
	return !slices.ContainsFunc(f.terms, func(t term) bool {
		return t.place == "labels" && (labels[t.name] == t.value) == t.unequal
	})
}

// holds reports whether the property has the value.
func (t term) holds(c *Class) bool {
	has := func(all []api.VersionCount) bool {
		for _, v := range all {
			if v.Component == t.name {
				return v.Version == t.value
			}
		}
		return t.value == ""
	}
	switch t.place {
	case "state":
		return slices.Contains(c.States, t.value)
	case "provisioningState":
		return c.State == t.value
	case "versions":
		return has(wantedVersions(c.Versions))
	case "components":
		return has(runningVersions(c.Components))
	}
	if kind, reason := strings.CutSuffix(t.name, "/reason"); reason {
		return c.find(kind).Reason == t.value
	}
	return c.find(t.name).Status == t.value
}
