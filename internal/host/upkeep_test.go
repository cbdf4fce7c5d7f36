package host

import (
	"slices"
	"testing"
)

// What a machine tells of its clock: a time service is asked for only where the kernel is not told
// the time, and a container's clock is its host's.
func TestClock(t *testing.T) {
	h, k := testHost(t), &kernel{}
	h.Kernel = k
	if c := h.Upkeep(t.Context()).Clock; c == nil || !c.Synchronized || c.Uptime <= 0 {
		t.Errorf("a clock that is kept: %+v", c)
	}
	k.unsynchronized = true
	if c := h.Upkeep(t.Context()).Clock; c == nil || c.Synchronized || c.Container ||
		len(c.Keepers) != 0 {
		t.Errorf("a clock without a time service: %+v", c)
	}
	const chrony = "chrony.service"
	h.Systemd.(*units).known[chrony] = UnitStatus{Path: "/usr/lib/systemd/system/" + chrony,
		Active: "active"}
	if c := h.Upkeep(t.Context()).Clock; c == nil || !slices.Equal(c.Keepers, []string{chrony}) {
		t.Errorf("a clock that chrony keeps: %+v", c)
	}
	write(t, h, "/run/systemd/container", "systemd-nspawn")
	if c := h.Upkeep(t.Context()).Clock; c == nil || !c.Container {
		t.Errorf("a container's clock: %+v", c)
	}
}

// An update leaves a mark until the next boot.
func TestRebootRequired(t *testing.T) {
	h := testHost(t)
	write(t, h, "/run/reboot-required", "")
	if u := h.Upkeep(t.Context()); !u.RebootRequired {
		t.Errorf("%+v", u)
	}
}

// dpkg's records tell what is not finished, what is held, and what may be upgraded.
func TestPackagesOfExamination(t *testing.T) {
	h := testHost(t)
	stanza := func(name, status string) string {
		return "Package: " + name + "\nStatus: " + status + "\nVersion: 1\nDescription: x\n" +
			" Status: not a field\n\n"
	}
	write(t, h, "/var/lib/dpkg/status", stanza("bash", "install ok installed")+
		stanza("broken", "install ok half-configured")+stanza("sick", "install reinstreq installed")+
		stanza("waits", "install ok triggers-pending")+stanza("aks-flex-node", "hold ok installed")+
		stanza("containerd.io", "install ok installed")+stanza("kubelet", "hold ok installed")+
		stanza("docker.io", "deinstall ok config-files"))
	var x Examination
	h.packages(&x)
	if !slices.Equal(x.Unfinished, []string{"broken", "sick"}) ||
		!slices.Equal(x.Held, []string{"aks-flex-node"}) ||
		!slices.Equal(x.Upgradable, []string{"containerd.io"}) {
		t.Errorf("%+v", x)
	}
}
