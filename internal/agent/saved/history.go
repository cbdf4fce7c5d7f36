package saved

import (
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// maxGenerations is how many generations are kept. Artifacts are kept of two: the applied one and
// the previous one.
const maxGenerations = 5

// Proved is a generation that was proved healthy, once.
type Proved struct {
	Generation string `json:"generation"`
	// At is when.
	At time.Time `json:"at,omitzero"`
	// Resource is what the machine ran on when it left this generation; zero until then.
	Resource config.Resource `json:"resource,omitzero"`
}

// History is the applied generation, which is the last one, and those that were applied before.
type History []Proved

// ReadHistory reads the history.
func (s *State) ReadHistory() (History, error) {
	var list History
	_, err := s.Load(HistoryFile, &list)
	return list, err
}

// Last returns when a generation was proved last.
func (list History) Last(id string) (Proved, bool) {
	for _, p := range slices.Backward(list) {
		if p.Generation == id {
			return p, true
		}
	}
	return Proved{}, false
}

// Next returns the history once a generation is proved, after one that ran with a resource. Each is
// in it once.
func (list History) Next(from, to string, ran config.Resource, at time.Time) History {
	if len(list) > 0 && list[len(list)-1].Generation == to {
		return list
	}
	before, _ := list.Last(from)
	again, _ := list.Last(to)
	rest := slices.DeleteFunc(slices.Clone(list), func(p Proved) bool {
		return p.Generation == from || p.Generation == to
	})
	if from != "" && from != to {
		rest = append(rest, Proved{Generation: from, At: before.At, Resource: ran})
	}
	rest = append(rest, Proved{Generation: to, At: at, Resource: again.Resource})
	return rest[max(0, len(rest)-maxGenerations):]
}

// IDs returns the generations of the history.
func (list History) IDs() []string {
	ids := make([]string, len(list))
	for i, p := range list {
		ids[i] = p.Generation
	}
	return ids
}
