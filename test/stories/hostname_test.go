package stories

import (
	"strings"
	"testing"
)

// Kubelet takes the Node's name from the machine if the two agree. A machine that is renamed later
// stays the same Node: kubelet then receives its name as an argument.
func TestRenamedMachine(t *testing.T) {
	w := newWorld(t)
	const file, unit = "/proc/sys/kernel/hostname", "/etc/systemd/system/kubelet.service"
	w.write(file, "EDGE-1\n")
	w.write("/etc/hostname", "edge-1\n")
	before := w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(w.read(unit), "--hostname-override") {
		t.Error("kubelet gets the machine's own name")
	}
	w.steady("with the machine's name")
	w.write(file, "renamed\n")
	copied := w.tree()
	w.cluster.set(func() { w.cluster.nodes["edge-1"].Status.NodeInfo.MachineID = anothersID })
	w.refuses() // a renamed copy, while the original is the Node
	w.same(copied)
	ready, began := w.cluster.ready, w.kubeletSince()
	w.cluster.set(func() { // restored to another machine: its kubelet has a name that it may not use
		w.cluster.ready = func(name string) bool { return w.kubeletSince() != began && ready(name) }
	})
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(w.read(unit), "--hostname-override=edge-1") {
		t.Error("kubelet would be another Node after the machine was renamed")
	}
	w.steady("renamed")
	w.write(file, "EDGE-1\n")
	w.steady("with its former name again")
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}
