package lab

import (
	"testing"
	"time"
)

// The measured sizes grow with the writes, and compaction limits them.
func TestStoreBench(t *testing.T) {
	b := StoreBench{Nodes: 300, For: 20 * time.Minute, Replicas: 2, Compact: true, Say: t.Logf}
	for name, measure := range map[string]func() (StoreSizes, error){
		"embedded": func() (StoreSizes, error) { return b.Embedded(t.Context()) },
		"outside":  func() (StoreSizes, error) { return b.Members(t.Context(), 1) },
	} {
		s, err := measure()
		if err != nil {
			t.Fatal(name, err)
		}
		// 20 minutes of 3 statuses, and 4 times 64 rows of 2 replicas.
		if s.Commits != 20*3+4*64*2 || s.Written == 0 || s.Peak < s.Filled ||
			s.Defragmented[1] > s.Peak {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
