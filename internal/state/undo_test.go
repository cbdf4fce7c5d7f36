package state

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// swap is a machine with one area.
func swap(name string, priority int) Swap { return Swap{Areas: []SwapArea{{name, priority}}} }

func TestDiffUndo(t *testing.T) {
	chains := func(found ...string) Residue {
		return Residue{Kind: Chains, Match: "CNI-", Found: found}
	}
	tests := []struct {
		name  string
		seen  Resource
		entry Entry
		plan  string
	}{
		{"as before", old, entry(old, file), ""},
		{"ours", file, entry(old, file), "restore /etc/x.conf"},
		{"removed by an operator", Absent{file.Path}, entry(old, file), "restore /etc/x.conf"},
		{
			"what an admin has put there is kept (M1)", foreign, entry(Absent{file.Path}, file),
			"remove /etc/x.conf (a copy of what is there is kept)",
		},
		{
			"a link of an admin is kept (M1)", Link{Path: file.Path, Target: "/etc/y"},
			entry(old, file), "restore /etc/x.conf (a copy of what is there is kept)",
		},
		{
			"a killed run had not yet replaced our former file",
			NewFile(file.Path, 0o644, "former"),
			Entry{
				Before: Record{Resource: Absent{file.Path}}, Ours: Record{Resource: file},
				Prior: Record{Resource: NewFile(file.Path, 0o644, "former")},
			},
			"remove /etc/x.conf",
		},
		{
			"a directory with something in it where a file was",
			Dir{Path: file.Path}, entry(Absent{file.Path}, file),
			"leave /etc/x.conf as it is: another process has changed it since",
		},
		{
			"an empty directory where a file was",
			Dir{Path: file.Path, Empty: true}, entry(Absent{file.Path}, file),
			"remove /etc/x.conf",
		},
		{
			"an empty disk of the owner where a file was",
			Dir{Path: file.Path, Empty: true, Mounted: true}, entry(Absent{file.Path}, file),
			"leave /etc/x.conf as it is: another process has changed it since",
		},
		{
			"our table, whatever its rules", Table{Name: "inet x", Rules: 9},
			entry(Table{Name: "inet x"}, Table{Name: "inet x", Rules: 7}), "remove nftables table inet x",
		},
		{
			"our package, which others have broken", Package{"a", PackageUnfinished, ""},
			entry(Package{"a", PackageAbsent, ""}, Package{"a", PackageInstalled, ""}), "purge package a",
		},
		{"kernel parameter", Sysctl{"a", "1"}, entry(Sysctl{"a", "0"}, Sysctl{"a", "1"}),
			"restore a to 0"},
		{
			"a kernel parameter of an admin (M1)",
			Sysctl{"a", "7"}, entry(Sysctl{"a", "0"}, Sysctl{"a", "1"}),
			"leave a as it is: another process has changed it since",
		},
		{
			"a foreign label (M1)", Label{"a", "2", true},
			entry(Label{Name: "a"}, Label{"a", "1", true}),
			"leave label:a as it is: another process has changed it since",
		},
		{"swap", Swap{}, entry(swap("/s", -2), Swap{}), "turn on swap on /s"},
		{"swap is on again at the kernel's priority", swap("/s", -3), entry(swap("/s", -2), Swap{}), ""},
		{"another area is on", swap("/t", 5), entry(swap("/s", -2), Swap{}), "turn on swap on /s"},
		{"our unit", running, entry(missing, running), "disable and stop x.service owes daemon-reload"},
		{
			"our unit, whatever its state",
			Unit{Name: "x.service", Enabled: Masked}, entry(missing, running),
			"disable x.service",
		},
		{
			"a unit of the owner, masked since (M1)",
			Unit{Name: "x.service", Enabled: Masked},
			entry(Unit{Name: "x.service", Enabled: Disabled}, running),
			"leave x.service as it is: another process has changed it since",
		},
		{
			"a run was killed between stop and mask", Unit{Name: "x.swap", Enabled: "generated"},
			entry(Unit{"x.swap", "generated", true}, Unit{Name: "x.swap", Enabled: Masked}),
			"start x.swap",
		},
		{
			"residue that came since", chains("CNI-a", "CNI-b"),
			entry(chains("CNI-a"), chains("CNI-a")), "remove iptables chains CNI-*",
		},
		{"residue that was there", chains("CNI-a"), entry(chains("CNI-a"), chains()), ""},
		{"unknown", Unknown{Of: "node:cordon", Why: "x"}, entry(Cordon{}, Cordon{On: true}), ""},
		{"Node", Registration{Node: "n", Exists: true},
			entry(Registration{Node: "n"}, Registration{Node: "n", Exists: true}),
			"delete Node n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ledger := remembers(tt.entry)
			seen := see(tt.seen)
			if diff := cmp.Diff(tt.plan, show(Diff(nil, nil, seen, ledger))); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			_, unknown := tt.seen.(Unknown)
			stale := Stale(nil, nil, seen, ledger)
			if got := len(stale) > 0; got != (tt.plan == "" && !unknown) {
				t.Errorf("stale is %v, the plan %q", stale, tt.plan)
			}
		})
	}
}

// Directories that are ours alone, on the owner's mounts and links too (M2).
func TestDiffUndoClaims(t *testing.T) {
	const restore, link = "restore directory /var/lib/x", "empty directory /var/lib/x"
	const leave = "leave /var/lib/x as it is: another process has changed it since"
	tests := []struct {
		name         string
		before, seen Resource
		plan         string
	}{
		{"made by us", Absent{claim.Path}, at(0), "remove /var/lib/x"},
		{"empty before", at(0, "empty"), at(0), restore},
		{"empty before and now", at(0, "empty"), at(0, "empty"), ""},
		{"filled by others before", at(0), at(0), ""},
		{"another mode since", at(0, "empty"), at(1), restore},
		{"of our mode, empty before and now", at(0, "empty"), at(1, "empty"), restore},
		{"a mount, empty before", at(1, "empty", "mounted"), at(1, "mounted"), restore},
		{"a mount, full before", at(1, "mounted"), at(1, "mounted"), ""},
		{"a mount whose owner has changed its mode", at(1, "mounted"),
			Dir{Path: claim.Path, Mode: 0o711, Mounted: true}, ""},
		{"a mount has covered it", at(0, "empty"), at(0, "empty", "mounted"), restore},
		{"a link, empty before", linked("empty"), linked(), link},
		{"a link, empty before and now", linked("empty"), linked("empty"), ""},
		{"moved behind a link by its owner", Absent{claim.Path}, linked(), leave},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plan := Diff(nil, nil, see(tt.seen), remembers(entry(tt.before, claim)))
			if diff := cmp.Diff(tt.plan, show(plan)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// No copy is kept of what goes with its directory; of what is beside it, or in a directory that
// stays, there is.
func TestNoCopyInPurgedDirectory(t *testing.T) {
	inside, beside := NewFile(claim.Path+"/a", 0o644, "a"), NewFile(claim.Path+"b", 0o644, "b")
	ledger := remembers(
		entry(Absent{claim.Path}, claim),
		entry(Absent{inside.Path}, inside), entry(Absent{beside.Path}, beside),
	)
	seen := see(at(0), NewFile(inside.Path, 0o644, "x"), NewFile(beside.Path, 0o644, "x"))
	got := show(Diff(nil, nil, seen, ledger))
	const want = "remove /var/lib/xb (a copy of what is there is kept)\n" +
		"remove /var/lib/x/a\nremove /var/lib/x"
	if got != want {
		t.Errorf("plan is\n%s\nwant\n%s", got, want)
	}
	ledger.Entries[0].Before.Resource = at(0) // it has files of its owner
	if got := show(Diff(nil, nil, seen, ledger)); strings.Count(got, "a copy") != 2 {
		t.Errorf("in the owner's directory the plan is\n%s", got)
	}
}

// The empty target undoes everything, latest first, and restarts nothing; what is undone while the
// node goes on restarts what used it.
func TestUndoOrder(t *testing.T) {
	ledger := remembers(
		entry(Sysctl{"vm.x", "0"}, Sysctl{"vm.x", "1"}),
		entry(Absent{file.Path}, file, "x.service", DaemonReload),
		entry(missing, running),
	)
	got := show(Diff(nil, nil, see(file, running, Sysctl{"vm.x", "1"}), ledger))
	const all = "disable and stop x.service owes daemon-reload\n" +
		"remove /etc/x.conf owes daemon-reload\n" +
		"restore vm.x to 0"
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	got = show(Diff(want(running), nil, see(file, running),
		remembers(entry(old, file, "x.service"))))
	if want := "restore /etc/x.conf owes x.service\nrestart x.service"; got != want {
		t.Errorf("plan is\n%s\nwant\n%s", got, want)
	}
}

// A ledger that is made again counts as ours only what is exactly as we make it, and leaves mounts
// and links to their owner.
func TestAdopt(t *testing.T) {
	link := Link{Path: "/usr/bin/x", Target: "/opt/x"}
	wanted := want(file, link, Sysctl{"vm.x", "1"}, bridge, Cordon{On: true}, running)
	seen := see(old, link, Sysctl{"vm.x", "1"}, bridge, Unknown{Of: "node:cordon"}, running)
	ledger := Adopt(wanted, seen)
	got := show(Diff(nil, nil, seen, ledger))
	if want := "disable and stop x.service owes daemon-reload\nremove /usr/bin/x"; got != want {
		t.Errorf("plan is\n%s\nwant\n%s", got, want)
	}
	for name, is := range map[string]Resource{
		"restore directory /var/lib/x": at(1, "mounted"),
		"empty directory /var/lib/x":   linked(),
		"remove /var/lib/x":            at(0),
	} {
		got := show(Diff(nil, nil, see(is), Adopt(want(claim), see(is))))
		if got != name {
			t.Errorf("plan is %q, want %q", got, name)
		}
	}
}

// Of each kind, what absence means for a lost ledger.
func TestAbsence(t *testing.T) {
	var without []string
	for _, r := range samples() {
		if absence(r) == nil {
			without = append(without, kind(r))
		} else if absence(r).Key() != r.Key() {
			t.Errorf("the absence of %s has another key", r.Key())
		}
	}
	slices.Sort(without)
	want := []string{"absent", "module", "package", "swap", "sysctl"}
	if diff := cmp.Diff(want, without); diff != "" {
		t.Errorf("kinds without an absence (-want +got):\n%s", diff)
	}
	for _, r := range []Resource{
		Dir{Path: "/shared"}, Unit{Name: "x.swap", Enabled: Masked}, Opaque{}, Unknown{},
	} {
		if absence(r) != nil || claims(r) {
			t.Errorf("%#v has an absence or claims something", r)
		}
	}
}
