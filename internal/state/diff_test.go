package state

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// show is a plan in one line a change, for comparison.
func show(p Plan) string {
	var lines []string
	for _, c := range p {
		line := Describe(c)
		if len(c.Owes) > 0 {
			line += " owes " + strings.Join(c.Owes, " ")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func see(resources ...Resource) Observed {
	seen := Observed{}
	for _, r := range resources {
		seen[r.Key()] = r
	}
	return seen
}

func entry(before, ours Resource, owes ...string) Entry {
	return Entry{Step: System, Before: Record{before}, Ours: Record{ours}, Owes: owes}
}

var (
	file    = NewFile("/etc/x.conf", 0o644, "new")
	old     = File{Path: "/etc/x.conf", Mode: 0o644, SHA256: Digest("old")}
	running = Unit{Name: "x.service", Enabled: Enabled, Active: true}
	missing = Unit{Name: "x.service", Enabled: NoUnit}
)

func TestDiff(t *testing.T) {
	claim := Dir{Path: "/var/lib/x", Mode: 0o755, Purge: true}
	bridge := Residue{Kind: Interfaces, Match: "cni0"}
	tests := []struct {
		name   string
		want   Desired
		seen   Observed
		ledger Ledger
		plan   string
	}{
		{name: "nothing wanted, nothing remembered", seen: see(), plan: ""},
		{name: "missing file", want: Desired{{Resource: file}}, seen: see(Absent{file.Path}), plan: "write /etc/x.conf"},
		{name: "other content", want: Desired{{Resource: file}}, seen: see(old), plan: "rewrite /etc/x.conf"},
		{name: "same content", want: Desired{{Resource: file}}, seen: see(File{Path: file.Path, Mode: 0o644, SHA256: file.SHA256}), plan: ""},
		{name: "other mode", want: Desired{{Resource: file}}, seen: see(File{Path: file.Path, Mode: 0o600, SHA256: file.SHA256}), plan: "rewrite /etc/x.conf"},
		{name: "shared directory is taken as it is", want: Desired{{Resource: Dir{Path: "/etc/cni", Mode: 0o755}}}, seen: see(Dir{Path: "/etc/cni", Mode: 0o700, UID: 7}), plan: ""},
		{name: "claim of an existing directory", want: Desired{{Resource: claim}}, seen: see(Dir{Path: claim.Path, Mode: 0o755, Empty: true}), plan: "claim directory /var/lib/x"},
		{name: "claim that is remembered", want: Desired{{Resource: claim}}, seen: see(Dir{Path: claim.Path, Mode: 0o755}), ledger: Ledger{Entries: []Entry{entry(Absent{claim.Path}, claim)}}, plan: ""},
		{name: "residue is remembered once", want: Desired{{Resource: bridge}}, seen: see(bridge), plan: "remember network interface cni0"},
		{name: "residue that is remembered", want: Desired{{Resource: bridge}}, seen: see(Residue{Kind: Interfaces, Match: "cni0", Found: []string{"cni0"}}), ledger: Ledger{Entries: []Entry{entry(bridge, bridge)}}, plan: ""},
		{
			name: "a changed file restarts its running unit",
			want: Desired{{Resource: file, Owes: []string{"x.service"}}, {Resource: running}},
			seen: see(old, running),
			plan: "rewrite /etc/x.conf owes x.service\nrestart x.service",
		},
		{
			name: "a unit that does not run starts, it does not restart",
			want: Desired{{Resource: file, Owes: []string{"x.service"}}, {Resource: running}},
			seen: see(old, missing),
			plan: "rewrite /etc/x.conf owes x.service\nenable and start x.service",
		},
		{
			name:   "a restart owed by a killed run is paid",
			want:   Desired{{Resource: running}},
			seen:   see(running),
			ledger: Ledger{Owed: []string{"x.service"}},
			plan:   "restart x.service",
		},
		{
			name:   "what is no longer wanted goes back first, and restarts what used it",
			want:   Desired{{Resource: running}},
			seen:   see(file, running),
			ledger: Ledger{Entries: []Entry{entry(old, file, "x.service")}},
			plan:   "restore /etc/x.conf owes x.service\nrestart x.service",
		},
		{
			name: "the empty target undoes everything, latest first, and restarts nothing",
			seen: see(file, running, Sysctl{"vm.x", "1"}),
			ledger: Ledger{Entries: []Entry{
				entry(Sysctl{"vm.x", "0"}, Sysctl{"vm.x", "1"}), entry(Absent{file.Path}, file, "x.service", DaemonReload), entry(missing, running),
			}},
			plan: "disable and stop x.service\nremove /etc/x.conf owes daemon-reload\nrestore vm.x to 0",
		},
		{name: "undone already", seen: see(old), ledger: Ledger{Entries: []Entry{entry(old, file)}}, plan: ""},
		{
			name:   "a claimed directory that was empty is emptied",
			seen:   see(Dir{Path: claim.Path, Mode: 0o755}),
			ledger: Ledger{Entries: []Entry{entry(Dir{Path: claim.Path, Mode: 0o755, Empty: true}, claim)}},
			plan:   "restore directory /var/lib/x",
		},
		{
			name:   "a claimed directory that others had filled is left",
			seen:   see(Dir{Path: claim.Path, Mode: 0o755}),
			ledger: Ledger{Entries: []Entry{entry(Dir{Path: claim.Path, Mode: 0o755}, claim)}},
			plan:   "",
		},
		{
			name:   "residue that came since goes, what was there stays",
			seen:   see(Residue{Kind: Chains, Match: "CNI-", Found: []string{"CNI-a", "CNI-b"}}),
			ledger: Ledger{Entries: []Entry{entry(Residue{Kind: Chains, Match: "CNI-", Found: []string{"CNI-a"}}, Residue{Kind: Chains, Match: "CNI-"})}},
			plan:   "remove iptables chains CNI-*",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.plan, show(Diff(tt.want, tt.seen, tt.ledger))); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// After a plan has been carried out there is nothing left to do, and after its undoing the host is as it was.
func TestDiffConvergesAndReturns(t *testing.T) {
	want := Desired{
		{Resource: Dir{Path: "/opt/x", Mode: 0o755, Purge: true}},
		{Resource: file, Owes: []string{DaemonReload, "x.service"}},
		{Resource: Link{"/usr/bin/x", "/opt/x/bin"}},
		{Resource: Sysctl{"vm.x", "1"}},
		{Resource: Residue{Kind: Interfaces, Match: "cni0"}},
		{Resource: running},
	}
	before := see(Absent{"/opt/x"}, old, Absent{"/usr/bin/x"}, Sysctl{"vm.x", "0"}, Residue{Kind: Interfaces, Match: "cni0"}, missing)
	plan := Diff(want, before, Ledger{})
	seen, ledger := After(before, plan), Ledger{}.Record(plan).Settled(plan)
	if again := Diff(want, seen, ledger); len(again) > 0 {
		t.Errorf("applied twice gives a plan:\n%s", show(again))
	}
	undo := Diff(nil, seen, ledger)
	if diff := cmp.Diff(before, After(seen, undo)); diff != "" {
		t.Errorf("undoing does not lead back (-before +after):\n%s", diff)
	}
	if rest := Diff(nil, After(seen, undo), ledger.Record(undo).Settled(undo)); len(rest) > 0 {
		t.Errorf("undone twice gives a plan:\n%s", show(rest))
	}
}

// What a thing was before us is recorded at its first touch and never again.
func TestLedgerKeepsTheFirstBefore(t *testing.T) {
	newer := NewFile(file.Path, 0o644, "newer")
	ledger := Ledger{}.Record(Plan{{From: old, To: file}}).Record(Plan{{From: file, To: newer}})
	got, _ := ledger.Entry(file.Key())
	if !Equal(got.Before.Resource, old) || !Equal(got.Ours.Resource, newer) || len(ledger.Entries) != 1 {
		t.Errorf("entry is %+v in %d entries; want before old and ours newer in one", got, len(ledger.Entries))
	}
}

func TestLedgerJSON(t *testing.T) {
	all := []Resource{
		Absent{"/a"}, Dir{Path: "/b", Mode: 0o755, Purge: true, Mounts: []string{"pods"}}, File{Path: "/c", Mode: 0o600, SHA256: Digest("c"), Secret: true},
		Link{"/d", "/e"}, running, Sysctl{"vm.x", "1"}, Module{"overlay", true}, Swap{Name: "/swap.img", On: true, Priority: -2},
		Residue{Kind: Mounts, Match: "/run/netns/", Found: []string{"/run/netns/x"}},
	}
	var ledger Ledger
	for _, r := range all {
		ledger.Entries = append(ledger.Entries, entry(r, r, "x.service"))
	}
	ledger.Owed = []string{DaemonReload}
	data, err := json.Marshal(ledger)
	if err != nil {
		t.Fatal(err)
	}
	var back Ledger
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ledger, back); diff != "" {
		t.Errorf("ledger differs after a round trip (-want +got):\n%s", diff)
	}
	if err := json.Unmarshal([]byte(`{"entries":[{"before":{"is":"exec"}}]}`), &back); err == nil {
		t.Error("a resource of unknown type was accepted")
	}
}

// Content never shows: not in plans, not in the ledger.
func TestContentStaysHidden(t *testing.T) {
	secret := NewFile("/etc/token", 0o600, "canary")
	secret.Secret = true
	plan := Diff(Desired{{Resource: secret}}, see(Absent{secret.Path}), Ledger{})
	data, err := json.Marshal(Ledger{}.Record(plan))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(data), show(plan), Show(secret)} {
		if strings.Contains(text, "canary") {
			t.Errorf("content shows in %q", text)
		}
	}
}

// A ledger that is made anew counts as ours only what is exactly as we make it.
func TestAdopt(t *testing.T) {
	want := Desired{{Resource: file}, {Resource: Link{"/usr/bin/x", "/opt/x"}}, {Resource: Sysctl{"vm.x", "1"}}, {Resource: running}}
	ledger := Adopt(want, see(old, Link{"/usr/bin/x", "/opt/x"}, Sysctl{"vm.x", "1"}, running))
	got := show(Diff(nil, see(old, Link{"/usr/bin/x", "/opt/x"}, Sysctl{"vm.x", "1"}, running), ledger))
	if want := "disable and stop x.service\nremove /usr/bin/x"; got != want {
		t.Errorf("plan is\n%s\nwant\n%s", got, want)
	}
}
