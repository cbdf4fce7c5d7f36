package flexnode

import (
	"regexp"
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

const maxTerms, maxFilter = 8, 1024

// aTerm matches a term, with the " and " behind it if another one follows.
var aTerm = regexp.MustCompile(`\A(?:labels\['((?:[^']|'')+)'\]|([A-Za-z]+)(?:/([^ ]+))?)` +
	` (eq|ne) '((?:[^']|'')*)'(?: and |\z)`)

// ReadFilter reads a filter; "" chooses all.
func ReadFilter(text string) (Filter, Problems) {
	var f Filter
	refuse := func(why string) (Filter, Problems) {
		return Filter{}, Problems{{"$filter", why + " See the API's documentation of $filter."}}
	}
	if len(text) > maxFilter {
		return refuse("The filter is too long.")
	}
	var names []string
	for _, state := range states {
		names = append(names, state.name)
	}
	unquoted := strings.NewReplacer("''", "'").Replace
	for rest := strings.TrimSpace(text); rest != ""; {
		m := aTerm.FindStringSubmatch(rest)
		if m == nil {
			return refuse("A term is PROPERTY eq 'VALUE' or PROPERTY ne 'VALUE', and ' and ' joins it " +
				"with another one; '" + shorten(rest) + "' does not begin with one.")
		}
		t := term{place: m[2], name: m[3], unequal: m[4] == "ne", value: unquoted(m[5])}
		switch {
		case m[1] != "":
			t.place, t.name = "labels", unquoted(m[1])
		case !t.isKnown():
			return refuse("The property in '" + shorten(m[0]) + "' is not known.")
		case t.place == "state" && !slices.Contains(names, t.value):
			return refuse("A state is one of " + strings.Join(names, ", ") + ".")
		}
		if f.terms = append(f.terms, t); len(f.terms) > maxTerms {
			return refuse("The filter has too many terms.")
		}
		rest = strings.TrimSpace(rest[len(m[0]):])
	}
	return f, nil
}

// isKnown reports whether the property of a term is one that a node may have, other than labels.
func (t term) isKnown() bool {
	switch t.place {
	case "state", "provisioningState":
		return t.name == ""
	case "versions":
		_, known := wantedVersions(Versions{})[t.name]
		return known
	case "components":
		_, known := runningVersions(api.Components{})[t.name]
		return known
	}
	return t.place == "conditions" && isConditionType(strings.TrimSuffix(t.name, "/reason"))
}

// IsEmpty reports whether the filter chooses all nodes.
func (f Filter) IsEmpty() bool { return len(f.terms) == 0 }

// Chooses reports whether the filter chooses a node of a class, with labels.
func (f Filter) Chooses(c *Class, labels map[string]string) bool {
	return !slices.ContainsFunc(f.terms, func(t term) bool {
		return t.holds(c, labels) == t.unequal
	})
}

func (t term) holds(c *Class, labels map[string]string) bool {
	switch t.place {
	case "labels":
		return labels[t.name] == t.value
	case "state":
		return slices.Contains(c.States, t.value)
	case "provisioningState":
		return c.State == t.value
	case "versions":
		return wantedVersions(c.Versions)[t.name] == t.value
	case "components":
		return runningVersions(c.Components)[t.name] == t.value
	}
	if kind, reason := strings.CutSuffix(t.name, "/reason"); reason {
		return c.find(kind).Reason == t.value
	}
	return c.find(t.name).Status == t.value
}
