package health

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// podStart is how long kubelet may take to begin with a pod.
const podStart = 30 * time.Second

// podsSynchronized: kubelet begins with every pod that is bound to its Node.
func podsSynchronized(e Evidence) Condition {
	if !e.Pods.OK() {
		return e.Pods.missing()
	}
	var started time.Time
	if e.Kubelet.OK() {
		started = e.Kubelet.Value.Since
	}
	var ignored, waiting []string
	for _, pod := range e.Pods.Value {
		begun := pod.Status.StartTime != nil || pod.DeletionTimestamp != nil ||
			pod.Status.Phase != corev1.PodPending && pod.Status.Phase != ""
		if begun {
			continue
		}
		since := bound(pod)
		if since.Before(started) {
			since = started
		}
		name := pod.Namespace + "/" + pod.Name
		if e.Now.Sub(since) > podStart {
			ignored = append(ignored, name)
		} else {
			waiting = append(waiting, name)
		}
	}
	switch {
	case len(ignored) > 0:
		return fails(OwnerMachine, "PodsIgnored", fmt.Sprintf("kubelet has not begun with %s for "+
			"more than %s: %s; read `journalctl -u kubelet`", count(len(ignored), "pod"), podStart,
			Clip(strings.Join(ignored, ", "), longestLine)))
	case len(waiting) > 0 && e.Now.Sub(started) <= podStart:
		return unknown("Starting", fmt.Sprintf("kubelet has just been started, and has not begun "+
			"with %s", count(len(waiting), "pod")))
	}
	return holds()
}

// bound is when a pod was bound to its Node.
func bound(pod corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}
