package state

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// samples are one wanted resource of each kind.
func samples() []Resource {
	return []Resource{
		Absent{"/a"},
		Dir{Path: "/b", Mode: 0o755, Purge: true, Mounts: []string{"pods"}, Mounted: true},
		File{Path: "/c", Mode: 0o600, SHA256: Digest("c")},
		Link{Path: "/d", Target: "/e", Dir: &Dir{Path: "/e", Mode: 0o700, Empty: true}},
		running,
		Sysctl{"vm.x", "1"},
		Module{"overlay", true},
		Swap{Areas: []SwapArea{{"/swap.img", -2}}},
		Residue{Kind: Mounts, Match: "/run/netns/", Found: []string{"/run/netns/x"}},
		Opening{"ufw", "in tcp 10250", true, false},
		Table{"inet x", "/x.nft", 7},
		Package{"azcmagent", PackageInstalled, "1.62"},
		Registration{
			Node: "n", Exists: true, PodCIDRs: []string{"10.0.0.0/24"},
			Labels: map[string]string{"a": "b"},
		},
		Label{"kubernetes.azure.com/managed", "false", true},
		Cordon{On: true},
	}
}

var ignoreRaw = cmpopts.IgnoreUnexported(Record{})

// A kind is complete: it has its file here, its case where it is observed and set, its JSON form,
// its equality and its words.
func TestKindsAreComplete(t *testing.T) {
	sample, setters := make(map[string]Resource), ""
	for _, r := range samples() {
		sample[kind(r)] = r
	}
	for _, file := range []string{"../host/host.go", "../nodeobject/nodeobject.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		setters += string(text)
	}
	if len(sample) != len(kinds) {
		t.Errorf("there are %d kinds and samples of %d", len(kinds), len(sample))
	}
	for name := range kinds {
		t.Run(name, func(t *testing.T) {
			r, ok := sample[name]
			if !ok {
				t.Fatal("samples has none of this kind")
			}
			exists(t, name+".go")
			if used := "state." + reflect.TypeOf(r).Name() + ":"; !strings.Contains(setters, used) {
				t.Errorf("neither host nor nodeobject has a `case %s`", used)
			}
			roundTrip(t, r)
			if !Equal(r, r) || !Satisfies(r, r) || Equal(r, Unknown{Of: r.Key()}) {
				t.Error("it is not equal to itself, or equal to what is unknown")
			}
			for _, c := range []Change{
				{To: r}, {From: r, To: r, Undo: true}, {To: r, Undo: true, Keep: true},
				{To: r, Undo: true, Leave: true},
			} {
				if text := Describe(c); text == "" || strings.TrimSpace(text) != text {
					t.Errorf("%+v is described as %q", c, text)
				}
			}
			if Show(r) == "" {
				t.Error("it is shown as nothing")
			}
		})
	}
}

// exists wants the kind's file in one of the rooms where it may stand.
func exists(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if _, err := os.Stat(filepath.FromSlash(p)); err == nil {
			return
		}
	}
	t.Errorf("there is no %s", strings.Join(paths, " or "))
}

func roundTrip(t *testing.T, r Resource) {
	t.Helper()
	ledger := Ledger{Entries: []Entry{entry(r, r, "x.service")}, Owed: []string{DaemonReload}}
	data, err := json.Marshal(ledger)
	if err != nil {
		t.Fatal(err)
	}
	var back Ledger
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ledger, back, ignoreRaw); diff != "" {
		t.Errorf("ledger differs after a round trip (-want +got):\n%s", diff)
	}
	item := Item{Step: System, Resource: r, Owes: []string{"a"}, Needs: "network", Only: "joining"}
	if data, err = json.Marshal(Desired{item}); err != nil {
		t.Fatal(err)
	}
	var list Desired
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Desired{item}, list); diff != "" {
		t.Errorf("list differs after a round trip (-want +got):\n%s", diff)
	}
}

func TestKeys(t *testing.T) {
	var keys, names []string
	for _, r := range samples() {
		keys, names = append(keys, string(r.Key())), append(names, r.Key().Name())
	}
	if diff := cmp.Diff([]string{
		"path:/a", "path:/b", "path:/c", "path:/d", "unit:x.service", "sysctl:vm.x",
		"module:overlay", "swap:all", "residue:mount:/run/netns/",
		"opening:ufw: in tcp 10250", "table:inet x", "package:azcmagent", "node:registration:n",
		"node:label:kubernetes.azure.com/managed", "node:cordon",
	}, keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if names[0] != "/a" || names[5] != "vm.x" {
		t.Errorf("names are %v", names)
	}
}

// What a node is unsafe, cut off or unable to start without is vital.
func TestVital(t *testing.T) {
	for key, want := range map[Key]bool{
		Opening{Firewall: "ufw", Rule: "in tcp 10250"}.Key(): true, Swap{}.Key(): true,
		Table{Name: "inet x"}.Key(): true, Sysctl{Name: AcceptRA("eth0.5")}.Key(): true,
		Sysctl{Name: "vm.overcommit_memory"}.Key(): true, Sysctl{Name: "kernel.panic"}.Key(): true,
		Sysctl{Name: "net.ipv4.ip_forward"}.Key(): false, file.Key(): false, running.Key(): false,
		Cordon{}.Key(): false,
	} {
		if key.IsVital() != want {
			t.Errorf("%s is vital: %t", key, key.IsVital())
		}
	}
}

func TestShow(t *testing.T) {
	for want, r := range map[string]Resource{
		"absent": Absent{"/a"}, "off": Swap{},
		"on: /s, /t": Swap{Areas: []SwapArea{{"/s", 0}, {"/t", 1}}},
		"a directory of mode 0700, owner 0:0, a mount point": at(1, "mounted"),
		"a file of mode 0644, owner 0:0, sha256 0123456789ab": File{
			Mode: 0o644, SHA256: "0123456789abcdef",
		},
		"a link to /e":          Link{Path: "/d", Target: "/e"},
		"not-found and stopped": missing, "enabled and running": running,
		"not loaded": Module{Name: "x"}, "loaded": Module{"x", true}, "1": Sysctl{"x", "1"},
		"none": bridge, "a, b": Residue{Kind: Chains, Found: []string{"a", "b"}},
		"registered": Registration{Exists: true}, "not registered": Registration{},
		`"x"`: Label{"a", "x", true}, "not set": Label{Name: "a"},
		"open": Opening{Open: true}, "closed": Opening{}, "not needed": Opening{Off: true},
		"loaded with 7 rules": Table{Name: "inet x", Rules: 7},
		"removed":             Package{State: PackageRemoved},
		"installed 1.2":       Package{State: PackageInstalled, Version: "1.2"},
		"cordoned":            Cordon{On: true}, "schedulable": Cordon{},
		"unknown: timeout":                    Unknown{Why: "timeout"},
		"a fifo, which a newer release wrote": Opaque{Kind: "fifo"},
	} {
		if got := Show(r); got != want {
			t.Errorf("%#v is shown as %q, want %q", r, got, want)
		}
	}
}

func TestDescribe(t *testing.T) {
	on := Swap{Areas: []SwapArea{{"/s", 0}}}
	for want, c := range map[string]Change{
		"turn off swap on /s":             {From: on, To: Swap{}},
		"turn off swap":                   {To: Swap{}},
		"remove /a":                       {To: Absent{"/a"}},
		"mask x.swap":                     {To: Unit{Name: "x.swap", Enabled: Masked}},
		"unload module x":                 {To: Module{Name: "x"}, Undo: true},
		"load module x":                   {To: Module{Name: "x", Loaded: true}},
		"restore link /d":                 {To: Link{Path: "/d"}, Undo: true},
		"remember processes of /opt/x":    {To: Residue{Kind: Processes, Match: "/opt/x"}},
		"remember nftables tables x":      {To: Residue{Kind: Tables, Match: "x"}},
		"remember control group x":        {To: Residue{Kind: Cgroups, Match: "x"}},
		"remove mounts /run/x*":           {To: Residue{Kind: Mounts, Match: "/run/x"}, Undo: true},
		"open firewall a: in b":           {To: Opening{"a", "in b", true, false}},
		"close firewall a: in b":          {To: Opening{Firewall: "a", Rule: "in b"}, Undo: true},
		"load nftables table inet x":      {To: Table{Name: "inet x", Rules: 7}},
		"remove nftables table inet x":    {To: Table{Name: "inet x"}, Undo: true},
		"install package a":               {To: Package{Name: "a", State: PackageInstalled}},
		"purge package a":                 {To: Package{Name: "a", State: PackageAbsent}, Undo: true},
		"remove package a":                {To: Package{Name: "a", State: PackageRemoved}, Undo: true},
		"remember directory /var/opt/x":   {To: Residue{Kind: Trees, Match: "/var/opt/x"}},
		"register Node n":                 {To: Registration{Node: "n", Exists: true}},
		`set label a to "1"`:              {To: Label{"a", "1", true}},
		"remove label a":                  {To: Label{Name: "a"}, Undo: true},
		"cordon the Node":                 {To: Cordon{On: true}},
		"uncordon the Node":               {To: Cordon{}, Undo: true},
		"set a fifo":                      {To: Opaque{Kind: "fifo"}},
		"restore a fifo":                  {To: Opaque{Kind: "fifo"}, Undo: true},
		"observe cordon":                  {To: Unknown{Of: "node:cordon"}},
		"rewrite /etc/x.conf":             {From: old, To: file},
		"stop x.service":                  {From: running, To: Unit{"x.service", Enabled, false}},
		"make directory /var/lib/x":       {To: claim},
		"set vm.x to 1":                   {To: Sysctl{"vm.x", "1"}},
		"remember network interface cni0": {To: bridge},
	} {
		if got := Describe(c); got != want {
			t.Errorf("%+v is described as %q, want %q", c, got, want)
		}
	}
}
