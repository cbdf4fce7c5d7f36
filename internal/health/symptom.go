package health

import (
	"strconv"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

// symptom is a line of kubelet's log that tells why it does not work.
type symptom struct {
	text            string // what is in the line
	reason, owner   string
	message, remedy string
	registering     bool // kubelet runs on, and only its Node is not registered
}

// symptoms of kubelet, the most decisive first.
func symptoms() []symptom {
	const own, configured, cluster = OwnerMachine, OwnerConfiguration, OwnerCluster
	return []symptom{
		{"unknown flag", "UnknownFlag", own, "kubelet does not know one of its flags",
			"check KUBELET_EXTRA_ARGS in /etc/default/kubelet", false},
		{"cgroup v1", "CgroupV1", own, "kubelet refuses this machine's cgroup v1",
			"boot with cgroup v2, or allow it by failCgroupV1: false in a drop-in below " +
				"kubelet.conf.d", false},
		{"running with swap on is not supported", "SwapOn", own,
			"kubelet refuses to run while swap is on",
			"find out what turned swap on again: swapon --show", false},
		{"misconfiguration: kubelet cgroup driver", "CgroupDriver", own,
			"kubelet and containerd disagree on the cgroup driver",
			"remove the drop-in that changes SystemdCgroup or cgroupDriver", false},
		{kube.ErrNoRuntimeService.Error(), "RuntimeServiceMissing", own,
			"containerd runs without its CRI plugin",
			"run `systemctl restart containerd`, and read `journalctl -u containerd`", false},
		{"address already in use", "PortInUse", own, "another program uses one of kubelet's ports",
			"find it with `ss -ltnp sport = :10250`, and stop it", false},
		{"failed to load kubelet config file", "ConfigurationUnreadable", own,
			"kubelet cannot read its configuration", "check the drop-ins below kubelet.conf.d",
			false},
		{"invalid Node Allocatable configuration", "ReservationsTooLarge", configured,
			"more is reserved than this machine has",
			"lower node.kubelet.kubeReserved or evictionHard", false},
		{"invalid kernel flag", "KernelParameter", own,
			"a kernel parameter is not as kubelet demands",
			"something sets it after us: `aks-flex-node drift` tells which", false},
		{"is forbidden: node", "NodeNameTaken", configured,
			"the API server does not let this machine use this node name",
			"another machine may have it: choose another agent.nodeName", true},
		{"Unable to register node", "RegistrationRefused", cluster,
			"the API server does not accept the Node", "read `journalctl -u kubelet`", true},
		{"x509:", "CertificateUntrusted", configured,
			"kubelet and the API server do not trust each other's certificates",
			"check node.kubelet.caCertData and the clock", true},
	}
}

// diagnose finds the most decisive symptom in kubelet's log.
func diagnose(log []string, registering bool) (Condition, bool) {
	for _, s := range symptoms() {
		for _, line := range log {
			if s.registering == registering && strings.Contains(line, s.text) {
				message := s.message + ": " + Clip(strings.TrimSpace(line), longestLine) + "; " + s.remedy
				return fails(s.owner, s.reason, message), true
			}
		}
	}
	return Condition{}, false
}

// longestLine is how much of a line of a log is quoted, in bytes.
const longestLine = 240

// lastWords quotes the end of a log.
func lastWords(log []string) string {
	if len(log) == 0 {
		return ""
	}
	return ": " + Clip(strings.TrimSpace(log[len(log)-1]), longestLine)
}

// count is a number with a noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
