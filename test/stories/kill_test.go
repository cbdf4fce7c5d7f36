package stories

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// campaign is a run that is killed at each of its touches.
type campaign struct {
	name string
	// wall gives the machine firewalls, which are managed; nil is none.
	wall    func(*world)
	prepare func(*world) error
	run     func(*world) error
	// again follows the kill, where the machine is not given back at once; nil is the same run
	// again.
	again func(*world) error
	// cut has the power fail at the kill, too.
	cut bool
	// killed checks the machine after the kill; nil checks nothing.
	killed func(w *world, t *testing.T, when string)
}

// A killed run leaves a machine that the next run finishes or rolls back, wherever it was killed:
// at each change of the machine, of the store and of the Node object. The long form kills at every
// point, the short one at every tenth, from another first one for each campaign.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	for i, c := range append(campaigns(), followedCampaigns()...) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.killedAnywhere(t, i, 10)
		})
	}
}

// killedAnywhere kills the run of the i-th campaign at every step-th point.
func (c campaign) killedAnywhere(t *testing.T, i, step int) {
	t.Helper()
	points := kills(t, i%step, step, func(n int, when string) bool { return c.killedAt(t, n, when) })
	if points < 20 && !t.Failed() {
		t.Errorf("the run has %d points only", points)
	}
}

func campaigns() []campaign {
	nothing := func(*world) error { return nil }
	bootstrap := func(w *world) error { _, err := w.bootstrap(); return err }
	change := func(w *world) {
		w.config = w.configuration(func(c map[string]any) {
			c["node"].(map[string]any)["maxPods"] = 42
			c["node"].(map[string]any)["labels"] = map[string]any{"example.com/site": "south"}
			c["proxy"] = map[string]any{"http": "http://127.0.0.1:9", "noProxy": []string{"127.0.0.1"}}
		})
	}
	return []campaign{
		{name: "join", prepare: nothing, run: bootstrap},
		{name: "change", prepare: func(w *world) error {
			err := bootstrap(w)
			change(w)
			return err
		}, run: bootstrap},
		{name: "rollback", prepare: func(w *world) error {
			err := bootstrap(w)
			w.refuseChangedKubelet()
			change(w)
			return err
		}, run: func(w *world) error {
			err := bootstrap(w)
			if rolledBack(err) {
				return nil
			}
			return err
		}},
		{name: "upgrade", prepare: func(w *world) error {
			err := bootstrap(w)
			w.upgrade()
			w.keepsCordon()
			return err
		}, run: bootstrap},
		{name: "repair", prepare: func(w *world) error {
			err := bootstrap(w)
			w.harm()
			return err
		}, run: func(w *world) error { _, err := w.drift(true); return err }},
		{name: "repair of the Node", prepare: func(w *world) error {
			err := bootstrap(w)
			w.cluster.set(func() { w.cluster.remove("edge-1") })
			return err
		}, run: bootstrap},
		{name: "leave", prepare: bootstrap, run: (*world).unbootstrap, again: bootstrap},
		{name: "join behind a firewall", wall: (*world).wall, prepare: nothing, run: bootstrap},
		{name: "repair of a firewall", wall: (*world).wall, prepare: func(w *world) error {
			err := bootstrap(w)
			w.reloadFirewalls()
			w.harm()
			return err
		}, run: func(w *world) error { _, err := w.drift(true); return err }},
		{name: "leave behind a firewall", wall: (*world).wall, prepare: bootstrap,
			run: (*world).unbootstrap, again: bootstrap},
		{name: "join behind firewalld", wall: (*world).firewalldWall, prepare: nothing,
			run: bootstrap},
		{name: "leave behind firewalld", wall: (*world).firewalldWall, prepare: bootstrap,
			run: (*world).unbootstrap, again: bootstrap},
	}
}

// killedAt runs the campaign's run, killed at its n-th touch, and the run that follows. It returns
// false if the run ended before.
func (c campaign) killedAt(t *testing.T, n int, when string) bool {
	t.Helper()
	w, before := c.world(t)
	if c.cut {
		w.disk = &disk{}
	}
	if err := c.prepare(w); err != nil {
		t.Fatal(err)
	}
	if !w.killed(t, n, func() error { return c.run(w) }) {
		return false
	}
	if c.cut {
		if err := w.disk.cut(n%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	if c.killed != nil {
		c.killed(w, t, when)
	}
	w.finish(t, when, c, n/3%2 == 0, before)
	return true
}

// world returns the machine on which the campaign begins, and its state before the join.
func (c campaign) world(t *testing.T) (w *world, before string) {
	t.Helper()
	w = newWorld(t)
	if c.wall != nil {
		c.wall(w)
	}
	return w, w.tree()
}

// finish makes the machine a node again, or gives it back at once.
func (w *world) finish(t *testing.T, when string, c campaign, again bool, before string) {
	t.Helper()
	if again {
		run := c.again
		if run == nil {
			run = c.run
		}
		if err := run(w); err != nil {
			t.Fatalf("%s, then run again: %v", when, err)
		}
		w.wholly(t, when)
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatalf("%s, then unbootstrap: %v", when, err)
	}
	if w.cluster.has("edge-1") {
		t.Errorf("%s: the Node is still in the cluster", when)
	}
	w.reloaded(t, when+", then unbootstrap")
	w.sameAs(t, when, before)
}

// wholly fails unless the machine is exactly one generation: no drift, no transition, and a kubelet
// that runs with the present files.
func (w *world) wholly(t *testing.T, when string) {
	t.Helper()
	if report, err := w.drift(false); err != nil || len(report.Changes) > 0 {
		t.Errorf("%s and run again, there is drift: %v %+v", when, err, report.Changes)
	}
	for _, name := range []string{"transition.json"} {
		if _, err := os.Stat(w.root + "/var/lib/aks-flex-node/" + name); err == nil {
			t.Errorf("%s and run again, %s is left", when, name)
		}
	}
	pods := fmt.Sprintf(`"maxPods": %d,`, w.config.Node.MaxPods)
	if !w.refused && !strings.Contains(kubeletConfig(w.root), pods) {
		t.Errorf("%s and run again, kubelet's configuration has no %s", when, pods)
	}
	if w.cordoned() {
		t.Errorf("%s and run again, the Node is cordoned", when)
	}
	for _, link := range w.dangling() {
		t.Errorf("%s and run again, %s leads to nothing", when, link)
	}
	if w.systemd.Running("kubelet.service") != w.systemd.OnDisk("kubelet.service") {
		t.Errorf("%s and run again, kubelet runs with another unit than the one on disk", when)
	}
	w.reloaded(t, when+" and run again")
}

// reloaded fails unless systemd has read all unit files on disk.
func (w *world) reloaded(t *testing.T, when string) {
	t.Helper()
	if units := w.systemd.NeedReload(); len(units) > 0 {
		t.Errorf("%s, systemd has not read %v again", when, units)
	}
}

// dangling returns the dangling links into the store of artifacts.
func (w *world) dangling() []string {
	w.t.Helper()
	var found []string
	err := filepath.WalkDir(w.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeSymlink {
			return err
		}
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, "/opt/aks-flex-node/store") {
			return err
		}
		if _, err := os.Stat(w.root + target); err != nil {
			found = append(found, strings.TrimPrefix(path, w.root))
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

func (w *world) sameAs(t *testing.T, when, before string) {
	t.Helper()
	if w.tree() != before {
		t.Errorf("%s:", when)
		w.same(before)
	}
}

// refuseChangedKubelet makes a kubelet with another configuration than the present one exit at its
// start.
func (w *world) refuseChangedKubelet() {
	healthy, start := kubeletConfig(w.root), w.systemd.OnStart
	w.refused = true
	w.systemd.OnStart = func(unit, text string) error {
		if unit == "kubelet.service" && kubeletConfig(w.root) != healthy {
			return errors.New("this kubelet does not start")
		}
		return start(unit, text)
	}
}

// harm changes resources of the agent, like an owner who forgets whose they are.
func (w *world) harm() {
	w.write("/proc/sys/net/ipv4/ip_forward", "0\n")
	for _, path := range []string{"/usr/local/bin/kubelet", "/var/lib/kubelet/config.yaml"} {
		if err := os.Remove(w.root + path); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.systemd.Stop(w.t.Context(), "kubelet.service"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(path string) string {
	data, err := os.ReadFile(w.root + path)
	if err != nil && !strings.Contains(path, "kubelet.service") {
		w.t.Fatal(err)
	}
	return string(data)
}
