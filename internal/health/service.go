package health

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

func containerdRunning(e Evidence) Condition {
	if !e.Containerd.OK() {
		return e.Containerd.missing()
	}
	if c, ok := lacksDownload(e); ok && !e.Containerd.Value.Active {
		return c
	}
	const cure = "read `journalctl -u containerd`; drop-ins in /etc/containerd/conf.d may be wrong"
	switch s := e.Containerd.Value; {
	case !s.Active:
		return fails(OwnerMachine, "NotRunning", "containerd does not run"+lastWords(s.Log)+"; "+cure)
	case errors.Is(e.Runtime.Err, kube.ErrNoRuntimeService):
		return fails(OwnerMachine, "RuntimeServiceMissing", "containerd runs without its CRI plugin, "+
			"so that kubelet starts no pod"+failedPlugin(s.Log)+"; run `systemctl restart containerd`, and "+
			"if that does not help, "+cure)
	case e.Hangs():
		return fails(OwnerMachine, "Hung", "containerd runs and does not answer, so that kubelet starts "+
			"no pod"+lastWords(s.Log)+"; run `systemctl restart containerd`; a disk that hangs has the "+
			"same effect: see `dmesg`")
	}
	return holds()
}

// Hangs reports whether the container runtime runs and does not answer. One question may be lost on
// a machine that is busy.
func (e Evidence) Hangs() bool { return e.Unanswered > 1 }

// failedPlugin quotes why containerd has no CRI plugin, where its log still tells: the last of its
// plugins that could not be loaded.
func failedPlugin(log []string) string {
	for _, line := range slices.Backward(log) {
		if strings.Contains(line, "failed to load plugin") && strings.Contains(line, "cri") {
			return lastWords([]string{line})
		}
	}
	return ""
}

func kubeletRunning(e Evidence) Condition {
	if !e.Kubelet.OK() {
		return e.Kubelet.missing()
	}
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
		"kubelet does not run"+lastWords(s.Log)+"; read `journalctl -u kubelet`")
}

// defaultSettling is the settling time: for how long kubelet must have run as one process.
const defaultSettling = 10 * time.Second

// mostFactor bounds the settling time of a kubelet that has often been restarted.
const mostFactor = 30

func (w Wanted) settling() time.Duration {
	if w.Settling == 0 {
		return defaultSettling
	}
	return w.Settling
}

// kubeletStable: a kubelet that crashes again and again posts a Ready status each time before it
// ends. It must have run as one process for the settling time, which grows with every restart by
// systemd, so that a crash every few minutes is not healthy in between.
func kubeletStable(e Evidence) Condition {
	if !e.Kubelet.OK() {
		return e.Kubelet.missing()
	}
	s := e.Kubelet.Value
	running := s.Active && s.PID != 0
	age := e.Now.Sub(s.Since)
	need := e.Wanted.settling() * time.Duration(min(1+s.Restarts, mostFactor))
	switch {
	case running && age >= need:
		return holds()
	case s.Restarts > 0:
		return unstable(s, age)
	case !running:
		return unknown("KubeletNotRunning", "kubelet does not run")
	default:
		return unknown("Settling", fmt.Sprintf("kubelet was started %s ago, and must run for %s",
			age.Round(time.Second), need))
	}
}

func unstable(s Service, age time.Duration) Condition {
	times := fmt.Sprintf("kubelet has ended by itself %s, and was last started %s ago",
		count(s.Restarts, "time"), age.Round(time.Second))
	if c, ok := diagnose(s.Log, false); ok {
		c.Message = times + ": " + c.Message
		return c
	}
	return fails(OwnerMachine, "Restarting", times+lastWords(s.Log)+"; read `journalctl -u kubelet`")
}

func kubeletHealthy(e Evidence) Condition {
	switch lacking, lacks := lacksDownload(e); {
	case !e.Healthz.Asked:
		return notAsked()
	case e.Healthz.Err == nil:
		return holds()
	case lacks && !e.Kubelet.Value.Active:
		return lacking
	case e.Kubelet.OK() && e.Now.Sub(e.Kubelet.Value.Since) < e.Wanted.settling():
		return unknown("Starting", "kubelet has just been started, and does not say yet whether it "+
			"is healthy: "+oneLine(e.Healthz.Err))
	}
	return fails(OwnerMachine, "Unhealthy", "kubelet says that it is not healthy: "+
		oneLine(e.Healthz.Err)+lastWords(e.Kubelet.Value.Log)+
		"; read `journalctl -u kubelet`, and restart it with "+
		"`systemctl restart kubelet`")
}
