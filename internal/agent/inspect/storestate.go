package inspect

import (
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// SweepFile is below RunDir: a machine that has booted is swept again.
const SweepFile = "sweep.json"

// Sweep is what was found when the artifacts of a generation were last read.
type Sweep struct {
	At         time.Time `json:"at"`
	Generation string    `json:"generation"`
	// Damaged names the artifacts that are not what was verified, Left those that are still to be
	// read.
	Damaged []string `json:"damaged"`
	Left    []string `json:"left,omitempty"`
}

func sweeps(h *Node) saved.Records { return saved.Records{Files: h.Reader, Dir: saved.RunDir} }

// Swept is what the last sweep of the applied generation has found; false when there was none.
func Swept(h *Node) (Sweep, bool) {
	var last Sweep
	known, err := sweeps(h).Load(SweepFile, &last)
	if err != nil || !known || h.Saved.Applied == nil || last.Generation != h.Saved.Applied.ID {
		return Sweep{}, false
	}
	return last, true
}

// storeEvidence is the last sweep, if there was one.
func storeEvidence(h *Node) health.Answer[[]string] {
	last, known := Swept(h)
	if !known {
		return health.Answer[[]string]{}
	}
	return health.Answered(last.Damaged, nil)
}

// StoreKey names an artifact among the things that drift.
func StoreKey(name string) state.Key { return state.Key("store:" + name) }

// storeDrift lists the damaged artifacts as drift.
func storeDrift(h *Node) []Entry {
	last, _ := Swept(h)
	list := make([]Entry, 0, len(last.Damaged))
	for _, name := range last.Damaged {
		e := Entry{
			Key: StoreKey(name), Action: "fetch " + name + " again",
			Expected: "as it was verified when it was fetched", Found: "damaged",
		}
		for _, item := range LinksInto(h.Saved.Applied, name) {
			e.Step = item.Step
		}
		list = append(list, e)
	}
	return list
}

// LinksInto are the links of a generation that lead into an artifact.
func LinksInto(g *generation.Generation, name string) []state.Item {
	return slices.DeleteFunc(slices.Clone(g.Node), func(item state.Item) bool {
		link, ok := item.Resource.(state.Link)
		return !ok || !strings.HasPrefix(link.Target, g.Facts.Store[name]+"/")
	})
}
