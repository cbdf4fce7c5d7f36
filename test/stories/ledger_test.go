package stories

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// What the ledger of the former release remembers although it is undone long since is not wanted
// again.
func TestMigrationOfAStaleLedger(t *testing.T) {
	w := formerWorld(t, "token")
	const shim = "/usr/local/bin/containerd-shim"
	journal, err := apply.OpenJournal(w.agent().Machine, agent.StateDir, "ledger.json")
	if err != nil {
		t.Fatal(err)
	}
	ledger := journal.Ledger().Record(state.Plan{{
		Step: state.Containerd, From: state.Absent{Path: shim},
		To: state.Link{Path: shim, Target: "/opt/x"},
	}})
	if err := journal.Save(t.Context(), ledger); err != nil {
		t.Fatal(err)
	}
	made, kubelet := w.node(), w.pid("kubelet.service")
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.asMade(t, made, kubelet)
	w.write(shim, "of the owner")
	w.drifted(t)
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	if w.read(shim) != "of the owner" {
		t.Error("the owner's file is gone")
	}
}

// A ledger that this release writes can be read by the one before it (commit bd1efd1), whose rules
// of decoding these are, and so can the facts that it renders the node with.
func TestFormerReleaseReadsTheLedger(t *testing.T) {
	worlds := map[string]func(*testing.T) *world{
		"joined":   func(t *testing.T) *world { return newWorld(t) },
		"migrated": func(t *testing.T) *world { return formerWorld(t, "token") },
	}
	for name, make := range worlds {
		t.Run(name, func(t *testing.T) {
			w := make(t)
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			joined := w.formerReads(t)
			ledger := w.read(agent.StateDir + "/ledger.json")
			if name == "migrated" && strings.Contains(ledger, `"kind":"table"`) {
				t.Error("bd1efd1 cannot observe tables")
			}
			w.config.Node.MaxPods = 42
			w.config.Proxy.HTTP, w.config.Proxy.NoProxy = "http://127.0.0.1:9", []string{"127.0.0.1"}
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			if changed := w.formerReads(t); changed <= joined {
				t.Errorf("the ledger had %d entries and has %d", joined, changed)
			}
		})
	}
}

// formerReads decodes the ledger as commit bd1efd1 does, and returns how many entries it has.
func (w *world) formerReads(t *testing.T) int {
	t.Helper()
	type record struct {
		Is, Path, Name, Kind, Match string
	}
	var page struct {
		Version int
		SHA256  string
		Ledger  json.RawMessage
	}
	var ledger struct {
		Entries []struct {
			Step         string
			Before, Ours record
			Owes         []string
		}
		Owed []string
	}
	if err := json.Unmarshal([]byte(w.read(agent.StateDir+"/ledger.json")), &page); err != nil {
		t.Fatal(err)
	}
	if page.Version != 1 || page.SHA256 != state.Digest(string(page.Ledger)) {
		t.Errorf("the ledger is of version %d, or not what its digest says", page.Version)
	}
	if err := json.Unmarshal(page.Ledger, &ledger); err != nil {
		t.Fatal(err)
	}
	known := []string{"absent", "dir", "file", "link", "unit", "sysctl", "module", "swap", "residue"}
	for _, e := range ledger.Entries {
		for _, r := range []record{e.Before, e.Ours} {
			if !slices.Contains(known, r.Is) || r.Path+r.Name+r.Match == "" {
				t.Errorf("bd1efd1 does not know %+v", r)
			}
		}
		if e.Before.Path+e.Before.Name+e.Before.Match != e.Ours.Path+e.Ours.Name+e.Ours.Match {
			t.Errorf("%+v and %+v are not the same thing", e.Before, e.Ours)
		}
	}
	var applied struct {
		Facts struct {
			Arch, Server, CA, PodCIDR string
			Joined                    bool
			Store                     map[string]string
		}
	}
	text := w.read(agent.StateDir + "/applied-config.json")
	if err := json.Unmarshal([]byte(text), &applied); err != nil {
		t.Fatal(err)
	}
	f := applied.Facts
	if !f.Joined || f.Arch != "amd64" || f.Server != w.cluster.URL || len(f.Store) != 7 ||
		f.CA != string(w.cluster.caPEM) || f.PodCIDR != "10.244.7.0/24" {
		t.Errorf("bd1efd1 would render the node with %+v", f)
	}
	return len(ledger.Entries)
}
