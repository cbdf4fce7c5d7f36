package health

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

func containerdRunning(e Evidence) Condition {
	const advice cure = "read `journalctl -u containerd`; drop-ins in /etc/containerd/conf.d may be " +
		"wrong"
	lacking, lacks := lacksDownload(e)
	s := e.Containerd.Value
	switch {
	case !e.Containerd.OK():
		return e.Containerd.missing()
	case errors.Is(e.Runtime.Err, kube.ErrNoRuntimeService):
		return fails(OwnerMachine, "RuntimeServiceMissing", "containerd runs without its CRI plugin, "+
			"so kubelet cannot start pods"+failedPlugin(s.Log), "run `systemctl restart containerd`, and "+
			"if that does not help, "+advice)
	case e.Hangs():
		return fails(OwnerMachine, "Hung", "containerd runs but does not answer, so kubelet cannot "+
			"start pods"+lastWords(s.Log), "run `systemctl restart containerd`; a disk that hangs has the "+
			"same effect: see `dmesg`")
	case s.Active && e.Unanswered < 2:
		return holds()
	case lacks:
		return lacking
	case s.Active: // it is starting, again and again
		return fails(OwnerMachine, "NotAnswering", oneLine(e.Runtime.Err)+lastWords(s.Log), advice)
	}
	return fails(OwnerMachine, "NotRunning", "containerd does not run"+lastWords(s.Log),
		"if it was stopped, run `aks-flex-node drift --repair`; or "+advice)
}

// Hangs reports whether the runtime runs but does not answer. A busy machine may miss one request.
func (e Evidence) Hangs() bool {
	return e.Unanswered > 1 && errors.Is(e.Runtime.Err, kube.ErrRuntimeSilent)
}

// failedPlugin quotes the reason why containerd has no CRI plugin, if its log still has it.
func failedPlugin(log []string) string {
	for _, line := range slices.Backward(log) {
		if strings.Contains(line, "failed to load plugin") && strings.Contains(line, "cri") {
			return lastWords([]string{line})
		}
	}
	return ""
}

func kubeletRunning(e Evidence) Condition {
	s := e.Kubelet.Value
	if s.Active {
		return holds()
	}
	if c, ok := lacksDownload(e); ok {
		return c
	}
	if c, ok := diagnose(s.Log, false); ok {
		return c
	}
	return fails(OwnerMachine, "NotRunning",
		"kubelet does not run"+lastWords(s.Log), "read `journalctl -u kubelet`")
}

const maxFactor = 30 // bounds the settling time of a kubelet with many restarts

// kubeletStable fails for a kubelet that crashes repeatedly, though it posts Ready each time. The
// min time of its process grows with every restart, so that it is not healthy in between.
func kubeletStable(e Evidence) Condition {
	s := e.Kubelet.Value
	running := s.Active && s.PID != 0
	age := e.Now.Sub(s.Since)
	need := e.Wanted.Settling * time.Duration(min(1+s.Restarts, maxFactor))
	switch {
	case running && age >= need:
		return holds()
	case s.Restarts > 0:
		times := fmt.Sprintf("kubelet has exited unexpectedly %s, and was last started %s ago",
			count(s.Restarts, "time"), age.Round(time.Second))
		if c, ok := diagnose(s.Log, false); ok {
			c.Message = times + ": " + c.Message
			return c
		}
		return fails(OwnerMachine, "Restarting", times+lastWords(s.Log), "read `journalctl -u kubelet`")
	case !running:
		return unknown("KubeletNotRunning", "kubelet does not run")
	}
	return unknown("Settling", fmt.Sprintf("kubelet was started %s ago, and must run for %s",
		age.Round(time.Second), need))
}

func kubeletHealthy(e Evidence) Condition {
	switch lacking, lacks := lacksDownload(e); {
	case !e.Healthz.Asked:
		return notAsked()
	case e.Healthz.Err == nil:
		return holds()
	case lacks && !e.Kubelet.Value.Active:
		return lacking
	case e.Kubelet.OK() && e.Now.Sub(e.Kubelet.Value.Since) < e.Wanted.Settling:
		return unknown("Starting", "kubelet has just been started, and does not report yet whether it "+
			"is healthy: "+oneLine(e.Healthz.Err))
	}
	return fails(OwnerMachine, "Unhealthy", "kubelet reports that it is not healthy: "+
		oneLine(e.Healthz.Err)+lastWords(e.Kubelet.Value.Log),
		"read `journalctl -u kubelet`, and restart it with `systemctl restart kubelet`")
}

// servingCertificate fails while kubelet waits for its certificate: logs and exec do not work. It
// also fails before that, if kubelet has received no new one in time.
func servingCertificate(e Evidence) Condition {
	const approve cure = "see `kubectl get csr --field-selector " +
		"spec.signerName=kubernetes.io/kubelet-serving` and run `kubectl certificate approve`; " +
		"flexnode-rp approves the requests of its nodes; or set serverTLSBootstrap to false"
	switch {
	case !e.Wanted.Node.Kubelet.ServerTLSBootstrap:
		return holds()
	case !e.Serving.OK():
		return e.Serving.missing()
	case e.Now.Before(e.Serving.Value.To):
		return renewal{
			what: "kubelet's serving certificate", owner: OwnerCluster,
			margin: func(life time.Duration) time.Duration { return life / 20 },
			expires: ", and then kubectl logs and exec do not work on this node: its request for a new " +
				"one has not been approved",
			reason: "NotRenewed", renew: approve,
		}.judge(e, e.Serving)
	}
	return fails(OwnerCluster, "Pending", "kubelet waits for its serving certificate "+
		"(node.kubelet.serverTLSBootstrap), and until then kubectl logs and exec do not work on this "+
		"node: its request has not been approved", approve)
}

type symptom struct {
	text          string // a part of the line
	reason, owner string
	message       string
	remedy        cure
	registering   bool // kubelet keeps running, but its Node is not registered
}

// symptoms returns the known symptoms of kubelet, the most decisive first.
func symptoms() []symptom {
	const own, configured, cluster = OwnerMachine, OwnerConfiguration, OwnerCluster
	return []symptom{
		{"unknown flag", "UnknownFlag", own, "kubelet does not know one of its flags",
			"check KUBELET_EXTRA_ARGS in /etc/default/kubelet", false},
		// Every kubelet warns of cgroup v1; only one that refuses it logs this line.
		{"to not run on a host using cgroup v1", "CgroupV1", own,
			"kubelet refuses this machine's cgroup v1",
			"boot with cgroup v2, or allow it by failCgroupV1: false in a drop-in below " +
				"kubelet.conf.d", false},
		{"running with swap on is not supported", "SwapOn", own,
			"kubelet refuses to run while swap is on",
			"find out what turned swap on again: swapon --show", false},
		{kube.ErrNoRuntimeService.Error(), "RuntimeServiceMissing", own,
			"containerd runs without its CRI plugin",
			"run `systemctl restart containerd`, and read `journalctl -u containerd`", false},
		{"inotify_init", "InotifyExhausted", own, "this machine has no inotify instances left",
			"raise the sysctl fs.inotify.max_user_instances", false},
		{"address already in use", "PortInUse", own, "another program uses one of kubelet's ports",
			"find it with `ss -ltnp sport = :10250`, and stop it", false},
		{"failed to load kubelet config file", "ConfigurationUnreadable", own,
			"kubelet cannot read its configuration", "check the drop-ins below kubelet.conf.d",
			false},
		{"invalid Node Allocatable configuration", "ReservationsTooLarge", configured,
			"more is reserved than this machine has",
			"lower node.kubelet.kubeReserved or evictionHard", false},
		{"invalid kernel flag", "KernelParameter", own,
			"a kernel parameter does not have the value that kubelet requires",
			"another program has changed it: `aks-flex-node drift` shows which parameter", false},
		{"is forbidden: node", "NodeNameTaken", configured,
			"the API server does not allow this machine to use this node name",
			"another machine may use it: set another agent.nodeName", true},
		{"Unable to register node", "RegistrationRefused", cluster,
			"the API server does not accept the Node", "read `journalctl -u kubelet`", true},
		{"x509:", "CertificateUntrusted", configured,
			"kubelet and the API server do not trust each other's certificates",
			"check node.kubelet.caCertData and the clock", true},
	}
}

func diagnose(log []string, registering bool) (Condition, bool) {
	for _, s := range symptoms() {
		for _, line := range log {
			if s.registering == registering && strings.Contains(line, s.text) {
				what := s.message + ": " + Clip(strings.TrimSpace(line), longestLine)
				return fails(s.owner, s.reason, what, s.remedy), true
			}
		}
	}
	return Condition{}, false
}

const longestLine = 240 // limits the quoted part of a line of a log, in bytes

// klogError matches the start of an error in kubelet's log: severity, date, time, thread, line.
var klogError = regexp.MustCompile(`^[EF][0-9]{4} [0-9:.]+ +[0-9]+ [^ ]+\] `)

// lastWords quotes the last error in a log, or else its last line.
func lastWords(log []string) string {
	if len(log) == 0 {
		return ""
	}
	last := log[len(log)-1]
	for _, line := range slices.Backward(log) {
		if header := klogError.FindString(line); header != "" {
			last = line[len(header):]
			break
		}
	}
	return ": " + Clip(strings.TrimSpace(last), longestLine)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
