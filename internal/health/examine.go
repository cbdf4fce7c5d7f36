package health

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/release"
)

// tried evaluates an answer without a value; form formats its error, as its %s.
func tried(a Answer[struct{}], owner, reason, form string, cures ...cure) Condition {
	switch {
	case !a.Asked:
		return notAsked()
	case a.Err != nil:
		return fails(owner, reason, fmt.Sprintf(form, oneLine(a.Err)), cures...)
	}
	return holds()
}

func configurationValid(e Evidence) Condition {
	return tried(e.Examined.Configuration, OwnerConfiguration, "Invalid",
		"%s", "fix it, and check it with `aks-flex-node config validate`")
}

// stateReadable checks the agent's records, without which it can neither keep nor remove the node.
func stateReadable(e Evidence) Condition {
	return tried(e.Examined.State, OwnerMachine, "Damaged", "%s; another program has changed files "+
		"below /var/lib/aks-flex-node", "restore it from a backup, or see "+
		"`aks-flex-node unbootstrap --help` (--force)")
}

func controlGroups(e Evidence) Condition {
	if e.Examined.CgroupVersion == 1 && !e.Examined.CgroupV1Allowed && refusesCgroupV1(e) {
		return fails(OwnerMachine, "CgroupV1", "this machine uses cgroup v1, which kubelet refuses "+
			"from 1.35 on", "boot with systemd.unified_cgroup_hierarchy=1: add it to "+
			"GRUB_CMDLINE_LINUX in /etc/default/grub, and run `update-grub` and `reboot`")
	}
	return lacking(e.Examined.MissingControllers, "ControllersMissing",
		"the kernel lacks the cgroup controllers: %s", "boot without cgroup_disable, or with a kernel "+
			"that has them; `cat /sys/fs/cgroup/cgroup.controllers` lists the available ones")
}

// refusesCgroupV1 reports whether kubelet refuses cgroup v1: from 1.35 on, or any unset version.
func refusesCgroupV1(e Evidence) bool {
	if e.Kubelet.OK() && e.Kubelet.Value.Active {
		return false
	}
	v, ok := release.Parse(e.Wanted.Kubernetes.Version)
	return !ok || v.Major > 1 || v.Minor >= 35
}

// podFeatures notes the features that this node cannot offer to pods. It fails if kubelet cannot
// start since the ids for user namespaces do not fit (pkg/kubelet/userns).
func podFeatures(e Evidence) Condition {
	w, ids := e.Wanted, e.Examined.KubeletIDs
	if kubernetes, ok := release.Parse(w.Kubernetes.Version); len(ids) == 2 &&
		(!ok || kubernetes.Minor >= 33) && (ids[0] != ids[1] || !idsFit(ids[0], w.Node.MaxPods)) {
		return fails(OwnerMachine, "SubordinateIDs", fmt.Sprintf("this machine has a user kubelet "+
			"whose subordinate ids kubelet does not accept: /etc/subuid and /etc/subgid must have the "+
			"same one line for it, kubelet:N:M, with N a multiple of 65536 and M at least %d times 65536",
			w.Node.MaxPods), "correct them, or remove the user")
	}
	is := map[string]string{"Kubernetes": w.Kubernetes.Version, "containerd": w.Containerd.Version,
		"runc": w.Runc.Version, "Linux": e.Examined.Kernel}
	var lacks []string
	for _, need := range []struct {
		feature, part string
		major, minor  int
	}{
		{"user namespaces (hostUsers: false)", "Kubernetes", 1, 33},
		{"user namespaces (hostUsers: false)", "containerd", 2, 0},
		{"user namespaces (hostUsers: false)", "runc", 1, 2},
		{"user namespaces (hostUsers: false)", "Linux", 6, 3},
		{"image volumes", "Kubernetes", 1, 35},
		{"image volumes", "containerd", 2, 1},
	} {
		var major, minor int
		n, _ := fmt.Sscanf(is[need.part], "%d.%d", &major, &minor) // "" if unset
		if n == 2 && (major < need.major || major == need.major && minor < need.minor) {
			lacks = append(lacks, fmt.Sprintf("%s need %s %d.%d, and this is %s", need.feature,
				need.part, need.major, need.minor, is[need.part]))
		}
	}
	if len(lacks) > 0 {
		return noted("Lacking", "pods cannot have: "+strings.Join(lacks, "; "))
	}
	return holds()
}

// idsFit reports whether a range of ids, N:M, is large enough for the given number of pods.
func idsFit(ids string, pods int) bool {
	const each = 1 << 16
	var first, length int64
	n, err := fmt.Sscanf(ids, "%d:%d", &first, &length)
	return err == nil && n == 2 && strings.Count(ids, ":") == 1 && first >= each &&
		first%each == 0 && length%each == 0 && length >= int64(pods)*each
}

func ownersSettings(e Evidence) Condition {
	if found := e.Examined.OwnersSettings; len(found) > 0 {
		return noted("OfOthers", "settings of other programs change the services, and are not drift: "+
			strings.Join(found, ", "))
	}
	return holds()
}

func kernelModules(e Evidence) Condition {
	d := e.distro()
	return lacking(e.Examined.MissingModules, "ModulesMissing",
		"the kernel lacks modules that a node needs: %s", "install the package that has "+
			"them (`"+d.Manager.Fetch+" "+d.KernelModules+"`), or another kernel")
}

// defaultRoute checks the default route. A machine that reaches all servers without one needs none.
func defaultRoute(e Evidence) Condition {
	if e.Examined.Routed == nil {
		return notAsked()
	}
	reached := e.Probe.OK() || e.Node.OK() || kube.NodeMissing(e.Node.Err)
	return when(!*e.Examined.Routed && !reached, OwnerNetwork, "NoRoute", "this machine has no "+
		"default route and cannot reach other networks", "see `ip route`, and the state of the network "+
		"(`networkctl`)")
}

func resolverConfigured(e Evidence) Condition {
	if e.Machine.Resolvers == nil {
		return notAsked()
	}
	return when(len(e.Machine.Resolvers) == 0, OwnerMachine, "NoServers", e.Machine.ResolvConf+
		" has no DNS server that pods can reach: those that ask the machine's servers, such as CoreDNS, "+
		"have none", "add one that is not this machine and has no zone (%eth0), or use systemd-resolved")
}

// packagesInOrder checks that automatic package runs neither fail nor restart a runtime.
func packagesInOrder(e Evidence) Condition {
	switch x, m := e.Examined, e.distro().Manager; {
	case len(x.Unfinished) > 0:
		return fails(OwnerMachine, "Unfinished", m.Name+" has not finished with "+
			strings.Join(x.Unfinished, ", ")+", and "+m.Front+" installs nothing until it has",
			"run `"+m.Finish+"`")
	case len(x.Upgradable) > 0:
		return fails(OwnerMachine, "RuntimeUpgraded", m.Front+" and "+m.Upgrader+" may upgrade "+
			strings.Join(x.Upgradable, " ")+", which restarts these services under the node").
			run("run `"+m.Hold+" %s`, or purge what is not needed ("+m.PurgeAll+")"+afterPurge,
				x.Upgradable...)
	case len(x.Held) > 0:
		return fails(OwnerMachine, "PackageHeld", "there is a hold on "+strings.Join(x.Held, " ")+
			", so it gets no updates").run("run `"+m.Unhold+" %s`", x.Held...)
	}
	return holds()
}

// Examined holds evidence that is too expensive for each check and that only doctor gathers.
type Examined struct {
	host.Examination
	// Configuration has the error of reading the configuration, State that of the agent's records.
	Configuration, State Answer[struct{}]
	Unprivileged         bool               // the caller is not root, and cannot see the node's files
	CgroupV1Allowed      bool               // the owner has configured kubelet to accept version 1
	OwnersSettings       []string           // the owner's files that override the services' settings
	Endpoints            Answer[[]Endpoint] // the servers that the configuration needs, as reached
}

// Endpoint is a server that the configuration needs.
type Endpoint struct {
	URL     string `json:"url"`     // only scheme, host and port
	Purpose string `json:"purpose"` // what the server is needed for
	Needed  bool   `json:"needed"`  // now, and not only for a future change
	Cluster bool   `json:"-"`       // it is the API server, which has a condition of its own
	kube.Reached
	Err error `json:"-"` // why it cannot be reached, a *kube.Fault
}

// MarshalJSON adds whether the server answers; clockAhead is in seconds.
func (e Endpoint) MarshalJSON() ([]byte, error) {
	type alone Endpoint
	all := struct {
		alone
		Answers    bool     `json:"answers"`
		Error      string   `json:"error,omitempty"`
		ClockAhead *float64 `json:"clockAhead,omitempty"`
	}{alone: alone(e), Answers: e.Err == nil}
	if e.Err != nil {
		all.Error = e.Err.Error()
	}
	if e.Ahead != nil {
		all.ClockAhead = new(e.Ahead.Seconds())
	}
	return json.Marshal(all)
}
