package inspect

import (
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Report is a plan as people and programs read it.
type Report struct {
	Changes   []Entry    `json:"changes"`
	Downloads []Download `json:"downloads,omitempty"`
	Hosts     []string   `json:"hosts,omitempty"`
	// Drains tells that the pods move to other nodes first.
	Drains bool `json:"drains,omitempty"`
}

// Entry is one change: what is done to what, and what is there now. For drift, Expected is what the
// applied configuration says and Found what is there.
type Entry struct {
	Step     state.Step `json:"step"`
	Key      state.Key  `json:"key"`
	Action   string     `json:"action"`
	Expected string     `json:"expected"`
	Found    string     `json:"found"`
}

// Download is an artifact that the store does not have yet. Size is 0 when unknown.
type Download struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"url"`
	Size    int64  `json:"size"`
}

// Entries returns the entries of a plan.
func Entries(plan state.Plan) []Entry {
	list := make([]Entry, len(plan))
	for i, c := range plan {
		list[i] = Entry{
			Step: c.Step, Key: c.To.Key(), Action: state.Describe(c),
			Expected: state.Show(c.To), Found: state.Show(c.From),
		}
		if c.Restart {
			list[i].Found = "restart pending"
		}
	}
	return list
}

// KindOf is the kind of a thing that drifts: path, unit, sysctl, node, store.
func KindOf(key string) string {
	kind, _, _ := strings.Cut(key, ":")
	return kind
}
