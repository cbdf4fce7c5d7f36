package leftopen

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// host is the machine that configurations are for.
var host = config.Host{HostName: "edge", Arch: "amd64"}

// document is a configuration of a node that authenticates by the given members of azure, with
// further members.
func document(azure, further string) string {
	return `{"azure": {"tenantId": "11111111-2222-3333-4444-555555555555", "targetCluster": {
		"location": "westeurope", "resourceId": "/subscriptions/11111111-2222-3333-4444-555555555555` +
		`/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c"}, ` + azure + "}" +
		further + "}"
}

// decode decodes a document with numbers as written.
func decode(t *testing.T, text string) (document map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&document); err != nil {
		t.Fatal(err)
	}
	return document
}

// parse parses a document.
func parse(t *testing.T, text string, before *config.Config) config.Config {
	t.Helper()
	read, err := config.Parse([]byte(text),
		config.Host{HostName: "edge", Arch: "amd64", Before: before})
	if err != nil {
		t.Fatal(err)
	}
	return read.Config
}

// bundles returns bundles as the resource provider hands them out.
func bundles(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("../../../api/flexnode/v20260501preview/testdata/*.json")
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
		loaded, err := config.Parse(text, host)
		want := loaded.Config
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		spell(&want)
		var got struct{ Config config.Config }
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		follows := cmp.Options{
			cmpopts.IgnoreFields(config.ServicePrincipal{}, "TenantID"),
			cmpopts.IgnoreFields(config.Arc{}, "Location"), cmpopts.EquateEmpty(),
		}
		if diff := cmp.Diff(got.Config, want, follows); diff != "" {
			t.Errorf("%s: an agent fills in (+) what is open: %s", name, diff)
		}
	}
}

// What Find gives completes a document to one that says the same and leaves nothing open.
func TestFindCompletesADocument(t *testing.T) {
	for name, text := range map[string]string{
		"a virtual machine": document(`"managedIdentity": {}`, ""),
		"Arc":               document(`"arc": {"autoRoleAssignment": false}`, ""),
		"another cloud":     document(`"managedIdentity": {}, "cloud": "AzureChinaCloud"`, ""),
		"labels and a window": document(`"managedIdentity": {}`, `,
			"node": {"labels": {"a": "b"}, "kubelet": {"seccompDefault": false}},
			"network": {"firewall": "manage"},
			"agent": {"upgradePolicy": {"maintenanceWindow": {"start": "02:00", "duration": "4h"}}}`),
	} {
		open, _ := Find(decode(t, text), host)
		whole := decode(t, text)
		putInto(whole, open)
		completed, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		want, got := parse(t, text, nil), parse(t, string(completed), nil)
		spell(&want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if left, _ := Find(decode(t, string(completed)), host); len(left) > 0 {
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

// The values that an agent keeps from its join are complete: a machine on which other values were
// applied keeps them where they are left open, and these only.
func TestKeptFromJoin(t *testing.T) {
	before := parse(t, document(`"arc": {"roles": ["Reader"]}, "kubeletCredential": "token"`,
		`, "node": {"kubelet": {"seccompDefault": false, "podPidsLimit": 100,
		"shutdownGracePeriod": "9s", "shutdownGracePeriodCriticalPods": "4s"}}`), nil)
	a := parse(t, document(`"arc": {}`, ""), &before).Redacted()
	b := parse(t, document(`"arc": {}`, ""), nil).Redacted()
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
