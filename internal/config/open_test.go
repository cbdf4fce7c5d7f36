package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// bundles are what the resource provider hands out.
func bundles(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("../../api/flexnode/v20260501preview/testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no bundles", err)
	}
	texts := map[string][]byte{}
	for _, file := range files {
		if texts[filepath.Base(file)], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

// A configuration that the resource provider has rendered is the same for an agent without any
// defaults: another agent's change nothing. What follows from other settings of the same bundle is
// not a default of the agent's.
func TestBundlesLeaveNothingOpen(t *testing.T) {
	for name, text := range bundles(t) {
		want, _, err := Parse(text, testHost())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want.spell()
		got, r := Config{}, &report{}
		r.decode("", settingsOf(readDocument(text, r), r), reflect.ValueOf(&got).Elem())
		follows := cmp.Options{
			cmpopts.IgnoreFields(ServicePrincipal{}, "TenantID"), cmpopts.IgnoreFields(Arc{}, "Location"),
		}
		if diff := cmp.Diff(got, want, follows); diff != "" || len(r.problems) > 0 {
			t.Errorf("%s: an agent fills in (+) what is open: %s %v", name, diff, r.problems)
		}
	}
}

// What Defaults gives completes a document to one that says the same and leaves nothing open.
func TestDefaultsCompleteADocument(t *testing.T) {
	for name, text := range map[string]string{
		"a token": string(tokenDocument(t).bytes(t)),
		"Arc":     string(azureDocument(t, `"arc": {"autoRoleAssignment": false}`).bytes(t)),
		"another cloud": string(azureDocument(t,
			`"managedIdentity": {}, "cloud": "AzureChinaCloud"`).bytes(t)),
		"labels and a window": string(tokenDocument(t).with(t, `{
			"node": {"labels": {"a": "b"}, "kubelet": {"seccompDefault": false}},
			"network": {"firewall": "manage"},
			"agent": {"upgradePolicy": {"maintenanceWindow": {"start": "02:00", "duration": "4h"}}}
		}`).bytes(t)),
	} {
		var document map[string]any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&document); err != nil {
			t.Fatal(err)
		}
		open, _ := FillAndCheck(document, Host{})
		var whole map[string]any
		d = json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&whole); err != nil {
			t.Fatal(err)
		}
		putInto(whole, open)
		completed, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		want, _, err := Parse([]byte(text), Host{Arch: "amd64", HostName: "edge"})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := Parse(completed, Host{Arch: "amd64", HostName: "edge"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want.spell()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		var again map[string]any
		d = json.NewDecoder(strings.NewReader(string(completed)))
		d.UseNumber()
		if err := d.Decode(&again); err != nil {
			t.Fatal(err)
		}
		if left, _ := FillAndCheck(again, Host{}); len(left) > 0 {
			t.Errorf("%s: still open: %v", name, left)
		}
	}
}

// putInto puts one object into another.
func putInto(to, from map[string]any) {
	for name, value := range from {
		inner, isObject := value.(map[string]any)
		below, both := to[name].(map[string]any)
		if isObject && both {
			putInto(below, inner)
		} else {
			to[name] = value
		}
	}
}

// What an agent keeps from its join is told completely: a machine on which other values were
// applied keeps them where they are left open, and these only.
func TestKeptFromJoin(t *testing.T) {
	before, _ := parseOK(t, azureDocument(t, `"arc": {"roles": ["Reader"]},
		"kubeletCredential": "token"`).with(t, `{"node": {"kubelet": {
		"seccompDefault": false, "podPidsLimit": 100, "shutdownGracePeriod": "9s",
		"shutdownGracePeriodCriticalPods": "4s"}}}`))
	kept := parseBefore(t, azureDocument(t, `"arc": {}`), before)
	fresh, _ := parseOK(t, azureDocument(t, `"arc": {}`))
	tell := func(c Config) map[string]any {
		data, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var all map[string]any
		if err := json.Unmarshal(data, &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	a, b := tell(kept), tell(fresh)
	if cmp.Equal(a, b) {
		t.Fatal("nothing is kept")
	}
	for _, path := range KeptFromJoin() {
		for _, o := range []map[string]any{a, b} {
			for _, name := range path[:len(path)-1] {
				o, _ = o[name].(map[string]any)
			}
			delete(o, path[len(path)-1])
		}
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("this is kept too: %s", diff)
	}
}

func TestUpgradePolicy(t *testing.T) {
	for drain, want := range map[string][2]bool{
		"": {false, true}, DrainMinor: {false, true}, DrainAlways: {true, true},
		DrainNever: {false, false},
	} {
		u := UpgradePolicy{Drain: drain}
		if got := [2]bool{u.Drains(false), u.Drains(true)}; got != want {
			t.Errorf("%q drains for a patch and for a minor version: %v", drain, got)
		}
	}
	if d := (UpgradePolicy{}).DrainDeadline(); d != 15*time.Minute {
		t.Error(d)
	}
	if d := (UpgradePolicy{Deadline: "2h"}).DrainDeadline(); d != 2*time.Hour {
		t.Error(d)
	}
}
