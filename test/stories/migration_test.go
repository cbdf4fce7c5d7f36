package stories

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/agent"
)

// whole are the archived machines that were healthy nodes; on the others a run was killed.
var whole = []string{"token", "cilium", "disk", "certificate", "principal", "rotated"}

// The first bootstrap of this release takes over a node that a former release has made: nothing of
// the node changes, kubelet runs on, and the node can be given back.
func TestMigration(t *testing.T) {
	for _, name := range whole {
		t.Run(name, func(t *testing.T) {
			w := formerWorld(t, name)
			made, kubelet := w.node(), w.pid("kubelet.service")
			w.readsFormer(t)
			if result, err := w.bootstrapHere(t); err != nil || result.Changes != 0 {
				t.Fatalf("%d changes, %v", result.Changes, err)
			}
			w.asMade(t, made, kubelet)
			w.migrated(t)
			touches := w.touched()
			result, err := w.bootstrapHere(t)
			if err != nil || result.Changes != 0 || w.touched() != touches {
				t.Errorf("the second bootstrap made %d changes and %d touches: %v",
					result.Changes, w.touched()-touches, err)
			}
			if _, err := w.agent().Unbootstrap(t.Context(), nil, agent.Leave{}); err != nil {
				t.Fatal(err)
			}
			w.givenBack(t)
		})
	}
}

// The daemon takes a node over too, and so does unbootstrap.
func TestMigrationByOthers(t *testing.T) {
	for _, name := range whole {
		t.Run(name, func(t *testing.T) {
			w := formerWorld(t, name)
			made, kubelet := w.node(), w.pid("kubelet.service")
			if err := w.watcher(w.agent()).Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.asMade(t, made, kubelet)
			w.migrated(t)
			touches := w.touched()
			if err := w.watcher(w.agent()).Reconcile(t.Context()); err != nil || w.touched() != touches {
				t.Errorf("the daemon made %d touches again: %v", w.touched()-touches, err)
			}
			w = formerWorld(t, name)
			if _, err := w.agent().Unbootstrap(t.Context(), nil, agent.Leave{}); err != nil {
				t.Fatal(err)
			}
			w.givenBack(t)
		})
	}
}

// A machine whose owner went back to the former release and returns is migrated again: what that
// release wrote is newer than what this one has left.
func TestMigrationAfterADowngrade(t *testing.T) {
	w := formerWorld(t, "rotated")
	made, kubelet := w.node(), w.pid("kubelet.service")
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	for _, file := range w.former.files {
		if strings.HasSuffix(file.Name, "-config.json") {
			if err := w.unpack(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := filepath.Join(w.root, agent.StateDir)
	abandoned := `{"kind": "change", "to": "x", "phase": "apply"}`
	w.write(agent.StateDir+"/transition.json", abandoned)
	err := errors.Join(os.Remove(dir+"/credentials.json"), w.forgetTokens())
	if err != nil {
		t.Fatal(err)
	}
	w.readsFormer(t)
	if err := w.daemonReconciles(); err != nil {
		t.Fatal(err)
	}
	w.asMade(t, made, kubelet)
	w.finished(t)
}

// What the former release began after a downgrade, and did not finish, does not count.
func TestMigrationAfterHalfADowngrade(t *testing.T) {
	w := formerWorld(t, "token")
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	made, kubelet := w.node(), w.pid("kubelet.service")
	for _, file := range formerWorld(t, "change").former.files {
		if strings.HasSuffix(file.Name, "/current-config.json") {
			if err := w.unpack(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.asMade(t, made, kubelet)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.asMade(t, made, kubelet)
}

// readsFormer runs the verbs that only read on a machine that is not migrated: they find no drift,
// and write nothing.
func (w *world) readsFormer(t *testing.T) {
	t.Helper()
	tree, touches := w.tree(), w.touched()
	a := w.agent()
	if s, err := a.Status(t.Context()); err != nil || !s.Healthy() {
		t.Errorf("status: %+v, %v", s, err)
	}
	if report, err := a.Drift(t.Context(), false); err != nil || len(report.Changes) > 0 {
		t.Errorf("drift: %+v, %v", report.Changes, err)
	}
	report, err := a.Plan(t.Context(), agent.Input{Config: w.config})
	if err != nil || len(report.Changes) > 0 || len(report.Downloads) > 0 {
		t.Errorf("plan: %+v, %v", report, err)
	}
	if c, err := a.Applied(t.Context()); err != nil || c == nil || c.Agent.NodeName != "edge-1" {
		t.Errorf("applied: %+v, %v", c, err)
	}
	if w.touched() != touches {
		t.Errorf("verbs that only read made %d touches", w.touched()-touches)
	}
	w.same(tree)
	w.givesTokens(t, "before the migration")
}

// bootstrapHere is bootstrap on this goroutine, which may be the only one that sees the disks.
func (w *world) bootstrapHere(t *testing.T) (agent.Result, error) {
	t.Helper()
	return w.agent().Bootstrap(t.Context(), agent.Input{Config: w.config, Origin: "file"})
}

// eitherRelease fails unless a machine whose migration was killed is one whole node: the records of
// whichever release count, there is no drift, kubelet has its token and runs, and no secret is
// lost.
func (w *world) eitherRelease(t *testing.T, when string) {
	t.Helper()
	a := w.agent()
	if report, err := a.Drift(t.Context(), false); err != nil || len(report.Changes) > 0 {
		t.Errorf("%s, there is drift: %v %+v", when, err, report.Changes)
	}
	if s, err := a.Status(t.Context()); err != nil || !s.Joined || s.Ready != "True" {
		t.Errorf("%s, the status is %+v, %v", when, s, err)
	}
	w.givesTokens(t, when)
	if strings.Contains(w.read(agent.StateDir+"/applied-config.json"), `"generation"`) {
		w.onlyOurRecords(t)
	}
}

// node describes the machine without the agent's own records.
func (w *world) node() []string {
	return slices.DeleteFunc(strings.Split(w.tree(), "\n"), func(line string) bool {
		return strings.HasPrefix(line, agent.StateDir+"/")
	})
}

func (w *world) pid(unit string) int {
	is, err := w.systemd.Unit(context.Background(), unit)
	if err != nil {
		w.t.Fatal(err)
	}
	return is.MainPID
}

// asMade fails unless the node is as it was made, and kubelet the same process.
func (w *world) asMade(t *testing.T, made []string, kubelet int) {
	t.Helper()
	if diff := cmp.Diff(made, w.node()); diff != "" {
		t.Errorf("the node was changed (-before +after):\n%s", diff)
	}
	if is := w.pid("kubelet.service"); is != kubelet || is == 0 {
		t.Errorf("kubelet is process %d, it was %d", is, kubelet)
	}
	a := w.agent()
	if report, err := a.Drift(t.Context(), false); err != nil || len(report.Changes) > 0 {
		t.Errorf("drift: %+v, %v", report.Changes, err)
	}
	if s, err := a.Status(t.Context()); err != nil || !s.Healthy() || !s.Joined {
		t.Errorf("status: %+v, %v", s, err)
	}
	w.givesTokens(t, "afterwards")
}

// givesTokens fails unless a kubelet that shows tokens gets one from the issuer.
func (w *world) givesTokens(t *testing.T, when string) {
	t.Helper()
	if !w.config.Azure.ShowsToken() {
		return
	}
	if err := w.forgetTokens(); err != nil {
		t.Fatal(err)
	}
	if token, err := w.agent().Token(t.Context()); err != nil || token.Value == "" {
		t.Errorf("%s, kubelet gets no token: %v", when, err)
	}
}

// forgetTokens removes kept tokens, so that the next one needs the secret.
func (w *world) forgetTokens() error {
	kept, err := filepath.Glob(filepath.Join(w.root, agent.RunDir, "token*.json"))
	for _, path := range kept {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// migrated fails unless the machine has the records of this release and no other.
func (w *world) migrated(t *testing.T) {
	t.Helper()
	dir := filepath.Join(w.root, agent.StateDir)
	for _, name := range []string{"live", "applied", "bindings.json"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(w.read(agent.StateDir+"/bindings.json"), w.cluster.uid) {
		t.Error("it is not known which cluster this is")
	}
	w.onlyOurRecords(t)
}

// onlyOurRecords fails when there is a record of the former release, or a secret in a file that is
// not for secrets.
func (w *world) onlyOurRecords(t *testing.T) {
	t.Helper()
	dir := filepath.Join(w.root, agent.StateDir)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		text := string(data)
		secret := strings.Contains(text, canary) || strings.Contains(text, `0123456789abcdef"`)
		if secret && d.Name() != "credentials.json" {
			t.Errorf("%s holds a secret", path)
		}
		if strings.HasSuffix(path, "-config.json") && !strings.Contains(text, `"generation"`) {
			t.Errorf("%s is a record of the former release", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// givenBack fails unless the machine is as it was before its join.
func (w *world) givenBack(t *testing.T) {
	t.Helper()
	w.same(strings.Join(w.former.Before, "\n"))
	if w.cluster.has("edge-1") {
		t.Error("the Node is still in the cluster")
	}
}
