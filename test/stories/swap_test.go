package stories

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

const swapKey = "swap:all"

// swapped reports whether swap is on.
func (w *world) swapped() bool { return strings.Contains(w.read("/proc/swaps"), " file ") }

// Swap that is turned on, on a node, is drift; a repair or bootstrap turns it off. Swap that was on
// before the join is on again after it.
func TestSwapThatComesLater(t *testing.T) {
	w := newWorld(t)
	before := w.tree()
	if _, err := w.bootstrap(); err != nil || w.swapped() {
		t.Fatalf("swap is on: %v, %v", w.swapped(), err)
	}
	for how, repair := range map[string]func() error{
		"drift --repair": func() error { _, err := w.drift(true); return err },
		"the daemon":     func() error { return w.repair(swapKey) },
		"bootstrap":      func() error { _, err := w.bootstrap(); return err },
	} {
		if err := w.kernel.SwapOn("/new.img", -3); err != nil {
			t.Fatal(err)
		}
		report, err := w.drift(false)
		if err != nil || len(report.Changes) != 1 || report.Changes[0].Key != swapKey {
			t.Errorf("%s: drift is %+v, %v", how, report, err)
		}
		if c := w.condition("SwapOff"); !strings.Contains(c.Message, "/new.img") {
			t.Errorf("%s: the condition is %+v", how, c)
		}
		if err := repair(); err != nil || w.swapped() {
			t.Errorf("%s: swap is on: %v, %v", how, w.swapped(), err)
		}
		w.steady(how)
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// A partition has a unit for each of its links, one of which has a file: that is masked.
func TestSwapPartition(t *testing.T) {
	w := newWorld(t)
	const link = "dev-sda5.swap"
	w.systemd.Appear(link)
	before := w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.systemd.Vanish(link) // with the swap
	w.steady("joined")
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.systemd.Appear(link)
	w.same(before)
}

// Swap that its owner has removed since the join does not keep the machine from being given back.
func TestSwapIsGone(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.systemd.OnStart = func(string, string) error { return errors.New("no such file") }
	if err := w.unbootstrap(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(w.root + saved.StateDir); !os.IsNotExist(err) {
		t.Errorf("records are left: %v", err)
	}
}

// The daemon turns off swap that a service of the machine turns on at each boot, also if it only
// reports other drift.
func TestSwapOfAService(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if err := w.kernel.SwapOn("/dev/zram0", 100); err != nil {
		t.Fatal(err)
	}
	found, err := w.checkAndRepair()
	if err != nil || !slices.Equal(found.Repair, []string{swapKey}) || w.swapped() {
		t.Errorf("found %+v, swap is on: %v; %v", found, w.swapped(), err)
	}
}

// So it does for kernel parameters that kubelet checks at its start.
func TestParametersOfKubelet(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.write("/proc/sys/vm/overcommit_memory", "2\n")
	w.write(forwardSysctl, "0\n")
	found, err := w.checkAndRepair()
	if err != nil || !slices.Equal(found.Repair, []string{"sysctl:vm.overcommit_memory"}) {
		t.Errorf("found %+v; %v", found, err)
	}
}

// Swap that a boot turns on during the health gate is turned off: kubelet would not start.
func TestSwapDuringTheGate(t *testing.T) {
	for _, kind := range []transition.Kind{transition.Rollback, transition.Change} {
		w := newWorld(t)
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		err := w.run(func(ctx context.Context, a *change.Agent) error {
			return leaves(ctx, a, transition.Transition{Kind: kind, Phase: transition.Gate})
		})
		err = errors.Join(err, w.kernel.SwapOn("/dev/zram0", 100), w.daemonReconciles())
		if err != nil || w.swapped() || w.underWay() != "" {
			t.Errorf("%s: %v; swap is on: %t, under way is %s", kind, err, w.swapped(), w.underWay())
		}
	}
}

// A change to LimitedSwap turns the machine's swap on again, which is no drift then; a change from
// it turns it off.
func TestLimitedSwap(t *testing.T) {
	w := newWorld(t)
	w.write("/sys/fs/cgroup/system.slice/memory.swap.max", "max\n")
	before := w.tree()
	for i, swap := range []string{"off", "LimitedSwap", "off", "LimitedSwap"} {
		keeps := swap == "LimitedSwap"
		w.config = w.configuration(func(c map[string]any) { kubelet(c)["swap"] = swap })
		if _, err := w.bootstrap(); err != nil || w.swapped() != keeps {
			t.Fatalf("%d, %s: swap is on: %v, %v", i, swap, w.swapped(), err)
		}
		if c := w.condition("SwapOff"); c.Status != health.True {
			t.Errorf("%d, %s: the condition is %+v", i, swap, c)
		}
		w.steady(swap)
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// LimitedSwap is refused before any change if the kernel cannot limit swap.
func TestLimitedSwapIsRefused(t *testing.T) {
	w := newWorld(t)
	before := w.tree()
	w.config = w.configuration(func(c map[string]any) { kubelet(c)["swap"] = "LimitedSwap" })
	if _, err := w.bootstrap(); err == nil || !strings.Contains(err.Error(), "cgroup v1") {
		t.Errorf("%v", err)
	}
	w.same(before)
}

// A change that turns off swap which was added since is rolled back without that swap: kubelet
// would not start.
func TestRollbackLeavesSwapOff(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	applied, start := w.pointer("applied"), w.systemd.OnStart
	w.systemd.OnStart = func(unit, text string) error {
		switch {
		case unit == "new.img.swap":
			return w.kernel.SwapOn("/new.img", -3)
		case unit == "kubelet.service" && w.swapped():
			t.Error("kubelet is started with swap on")
		}
		return start(unit, text)
	}
	w.systemd.Generate("new.img.swap")
	if err := w.systemd.Start(t.Context(), "new.img.swap"); err != nil {
		t.Fatal(err)
	}
	before := w.tree()
	w.illWhenChanged(func(w *world) func() {
		w.sick.Store(true)
		return func() { w.sick.Store(false) }
	})
	w.config = w.configuration(nodeSetting("maxPods", 42))
	w.config.Agent.ReadyTimeout = "1500ms"
	if _, err := w.bootstrap(); !rolledBack(err) || w.swapped() {
		t.Errorf("swap is on: %v, %v", w.swapped(), err)
	}
	w.goesOn(applied, w.kubeletSince())
	if err := w.unbootstrap(); err != nil || !w.swapped() {
		t.Errorf("swap is on after all: %v, %v; it was\n%s", w.swapped(), err, before)
	}
}
