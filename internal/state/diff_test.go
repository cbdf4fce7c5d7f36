package state

import (
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

func want(resources ...Resource) Desired {
	var d Desired
	for _, r := range resources {
		d = append(d, Item{Step: System, Resource: r})
	}
	return d
}

func entry(before, ours Resource, owes ...string) Entry {
	return Entry{
		Step: System, Before: Record{Resource: before}, Ours: Record{Resource: ours}, Owes: owes,
	}
}

func remembers(entries ...Entry) Ledger { return Ledger{Entries: entries} }

var (
	file    = NewFile("/etc/x.conf", 0o644, "new")
	old     = File{Path: "/etc/x.conf", Mode: 0o644, SHA256: Digest("old")}
	foreign = File{Path: "/etc/x.conf", Mode: 0o644, SHA256: Digest("an admin's")}
	running = Unit{Name: "x.service", Enabled: Enabled, Active: true}
	missing = Unit{Name: "x.service", Enabled: NoUnit}
	claim   = Dir{Path: "/var/lib/x", Mode: 0o755, Purge: true}
	bridge  = Residue{Kind: Interfaces, Match: "cni0"}
)

// at is an observed directory at the claimed path.
func at(mode int, flags ...string) Dir {
	d := Dir{Path: claim.Path, Mode: 0o755}
	if mode != 0 {
		d.Mode = 0o700
	}
	for _, f := range flags {
		d.Empty, d.Mounted = d.Empty || f == "empty", d.Mounted || f == "mounted"
	}
	return d
}

// linked is an observed link at the claimed path that leads to a directory.
func linked(flags ...string) Link {
	dir := at(1, flags...)
	return Link{Path: claim.Path, Target: "/data/x", Dir: &dir}
}

func TestDiffWanted(t *testing.T) {
	owing := Desired{{Resource: file, Owes: []string{"x.service"}}, {Resource: running}}
	cni0 := Residue{Kind: Interfaces, Match: "cni0", Found: []string{"cni0"}}
	tests := []struct {
		name   string
		want   Desired
		seen   Observed
		ledger Ledger
		plan   string
	}{
		{name: "nothing wanted, nothing remembered", seen: see()},
		{"missing file", want(file), see(Absent{file.Path}), Ledger{}, "write /etc/x.conf"},
		{"other content", want(file), see(old), Ledger{}, "rewrite /etc/x.conf"},
		{"same content", want(file), see(file), Ledger{}, ""},
		{
			"other mode", want(file),
			see(File{Path: file.Path, Mode: 0o600, SHA256: file.SHA256}), Ledger{},
			"rewrite /etc/x.conf",
		},
		{
			"a shared directory is taken as it is", want(Dir{Path: "/etc/cni", Mode: 0o755}),
			see(Dir{Path: "/etc/cni", Mode: 0o700, UID: 7}), Ledger{}, "",
		},
		{
			"a shared directory may be the owner's link", want(Dir{Path: claim.Path, Mode: 0o755}),
			see(linked()), Ledger{}, "",
		},
		{
			"a link that leads nowhere is replaced", want(claim),
			see(Link{Path: claim.Path, Target: "/gone"}), Ledger{}, "make directory /var/lib/x",
		},
		{
			"a remembered link whose disk is not mounted is left alone", want(claim),
			see(Link{Path: claim.Path, Target: "/gone"}), remembers(entry(linked("empty"), claim)), "",
		},
		{"claim", want(claim), see(at(0, "empty")), Ledger{}, "claim directory /var/lib/x"},
		{
			"a mounted directory is claimed whatever its mode", want(claim),
			see(at(1, "empty", "mounted")), Ledger{}, "claim directory /var/lib/x",
		},
		{
			"a linked directory is claimed", want(claim), see(linked("empty")), Ledger{},
			"claim directory /var/lib/x",
		},
		{
			"a mounted claim that is remembered", want(claim), see(at(1, "mounted")),
			remembers(entry(at(1, "empty", "mounted"), claim)), "",
		},
		{
			"a linked claim that is remembered", want(claim), see(linked()),
			remembers(entry(linked("empty"), claim)), "",
		},
		{
			"a claim that is remembered", want(claim), see(at(0)),
			remembers(entry(Absent{claim.Path}, claim)), "",
		},
		{
			"residue is remembered once", want(bridge), see(bridge), Ledger{},
			"remember network interface cni0",
		},
		{
			"residue that is remembered", want(bridge), see(cni0),
			remembers(entry(bridge, bridge)), "",
		},
		{
			"a changed file restarts its running unit", owing, see(old, running), Ledger{},
			"rewrite /etc/x.conf owes x.service\nrestart x.service",
		},
		{
			"a unit that does not run starts", owing, see(old, missing), Ledger{},
			"rewrite /etc/x.conf owes x.service\nenable and start x.service",
		},
		{
			"a restart owed by a killed run is paid", want(running), see(running),
			Ledger{Owed: []string{"x.service"}}, "restart x.service",
		},
		{
			"a firewall that stops nothing is left alone",
			want(Opening{"ufw", "in tcp 10250", true, false}),
			see(Opening{"ufw", "in tcp 10250", false, true}), Ledger{}, "",
		},
		{
			"what is unknown is not changed", want(Label{Name: "a", Value: "1", Set: true}, file),
			see(Unknown{Of: "node:label:a", Why: "timeout"}, old), Ledger{},
			"rewrite /etc/x.conf",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := show(Diff(tt.want, nil, tt.seen, tt.ledger))
			if diff := cmp.Diff(tt.plan, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// A copy is kept of what another process has written into a file of ours, and of nothing else.
func TestDiffKeepsEdits(t *testing.T) {
	next, mode := NewFile(file.Path, 0o644, "next"), file
	mode.Mode = 0o666
	changing := entry(old, next)
	changing.Prior = Record{Resource: file}
	public, secret := entry(old, file), entry(old, NewFile(file.Path, 0o600, "key"))
	public.Step, secret.Step = Credentials, Credentials
	for name, tt := range map[string]struct {
		seen  Resource
		entry Entry
		keep  bool
	}{
		"an edit":                {foreign, entry(old, file), true},
		"an edit, mid-change":    {foreign, changing, true},
		"a link":                 {Link{Path: file.Path, Target: "/y"}, entry(old, file), true},
		"a CA":                   {foreign, public, true},
		"a credential":           {foreign, secret, false},
		"ours":                   {file, entry(old, file), false},
		"ours, another mode":     {mode, entry(old, file), false},
		"before":                 {old, entry(old, file), false},
		"prior":                  {file, changing, false},
		"removed":                {Absent{file.Path}, entry(old, file), false},
		"a directory":            {Dir{Path: file.Path}, entry(old, file), false},
		"never touched till now": {foreign, entry(missing, running), false},
	} {
		plan := Diff(want(next), nil, see(tt.seen, running), remembers(tt.entry, entry(missing, running)))
		if i := len(plan) - 1; i < 0 || plan[i].Keep != tt.keep ||
			strings.Contains(Describe(plan[i]), "a copy of what is there is kept") != tt.keep {
			t.Errorf("%s: the plan is\n%s", name, show(plan))
		}
	}
}

// What only a later item wants is neither changed nor undone, and its unit is restarted in time.
func TestDiffLater(t *testing.T) {
	conflist := NewFile("/etc/cni/net.d/10-x.conflist", 0o644, "net")
	now := Desired{{Resource: file, Owes: []string{"x.service"}}}
	ledger := remembers(entry(Absent{conflist.Path}, conflist))
	got := Diff(now, want(conflist, running), see(old, conflist, running), ledger)
	if diff := cmp.Diff("rewrite /etc/x.conf owes x.service", show(got)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	got = Diff(nil, want(conflist), see(conflist), ledger)
	if len(got) > 0 || len(Stale(nil, want(conflist), see(Absent{conflist.Path}), ledger)) > 0 {
		t.Errorf("what is wanted later is undone: %s", show(got))
	}
}

// A spared item is neither applied nor undone, starts nothing, and has no need.
func TestDiffSpared(t *testing.T) {
	spared := want(file, claim, running)
	for i := range spared {
		spared[i].Spared, spared[i].Needs = true, "never"
	}
	now, _, unmet := spared.Cut(func(Need) bool { return false })
	if unmet != "" || len(now) != len(spared) {
		t.Errorf("the need %q of a spared item cuts the list", unmet)
	}
	for name, ledger := range map[string]Ledger{
		"never touched": {},
		"remembered": remembers(
			entry(Absent{file.Path}, file, "x.service"), entry(Absent{claim.Path}, claim),
			entry(missing, running)),
	} {
		plan := Diff(now, nil, see(foreign, at(0), running), ledger)
		if len(plan) > 0 {
			t.Errorf("%s: the plan is\n%s", name, show(plan))
		}
	}
	if l := Adopt(now, see(file, at(0), running)); len(l.Entries) > 0 {
		t.Errorf("adopted are %v", l.Keys())
	}
	if plan := append(Between(now, nil), Between(nil, now)...); len(plan) > 0 {
		t.Errorf("between is\n%s", show(plan))
	}
}

// After a plan has been carried out there is nothing left to do, and after its undo the machine is
// as it was.
func TestDiffConvergesAndReturns(t *testing.T) {
	wanted := Desired{
		{Resource: Dir{Path: "/opt/x", Mode: 0o755, Purge: true}},
		{Resource: file, Owes: []string{DaemonReload, "x.service"}},
		{Resource: Link{Path: "/usr/bin/x", Target: "/opt/x/bin"}},
		{Resource: Sysctl{"vm.x", "1"}},
		{Resource: bridge},
		{Resource: running},
		{Resource: Registration{Node: "n", Exists: true}},
		{Resource: Label{Name: "managed", Value: "false", Set: true}},
		{Resource: Cordon{On: true}},
	}
	before := see(
		Absent{"/opt/x"}, old, Absent{"/usr/bin/x"}, Sysctl{"vm.x", "0"}, bridge, missing,
		Registration{Node: "n"}, Label{Name: "managed"}, Cordon{},
	)
	plan := Diff(wanted, nil, before, Ledger{})
	ledger := Ledger{}.Record(plan).Done(plan).Paid(DaemonReload).Paid("x.service")
	seen := After(before, plan)
	if again := Diff(wanted, nil, seen, ledger); len(again) > 0 {
		t.Errorf("applied twice gives a plan:\n%s", show(again))
	}
	undo := Diff(nil, nil, seen, ledger)
	if diff := cmp.Diff(before, After(seen, undo)); diff != "" {
		t.Errorf("undoing does not lead back (-before +after):\n%s", diff)
	}
	stale := Stale(nil, nil, seen, ledger)
	if ledger = ledger.Record(undo).Done(undo).Forget(stale...); len(ledger.Entries) > 0 {
		t.Errorf("the ledger still remembers %v", ledger.Keys())
	}
}

// A plan can be narrowed to some keys; it then undoes nothing.
func TestOnly(t *testing.T) {
	ledger := remembers(entry(missing, running))
	plan := Diff(want(file, claim), nil, see(old, at(0), running), ledger)
	if got := show(plan.Only([]Key{file.Key(), running.Key()})); got != "rewrite /etc/x.conf" {
		t.Errorf("the plan is\n%s", got)
	}
	if got := After(Observed{}, Plan{{To: file}, {To: running, Leave: true}}); len(got) != 1 {
		t.Errorf("afterwards is seen %v", got)
	}
}
