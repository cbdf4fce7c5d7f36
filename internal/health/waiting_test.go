package health

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/transition"
)

func TestNoChangeWaiting(t *testing.T) {
	waits := func(w Waiting) Evidence { return with(func(e *Evidence) { e.Waiting = &w }) }
	drain := Waiting{
		Reason: DrainBlocked, Message: "cannot evict these pods:\ndefault/db", Owner: OwnerWorkload,
		Since: ago(time.Hour), NextAttempt: now().Add(time.Hour),
	}
	long := drain
	long.Message = strings.Repeat("default/db ", 1000)
	kept := func(reason string) Evidence {
		return with(func(e *Evidence) { e.Waiting, e.Upkeep.Polls = &drain, &Polls{Kept: reason} })
	}
	check(t, NoChangeWaiting, []expect{
		{"a deletion waits for a person", kept(DeletionWaits), False, DeletionWaits, OwnerMachine,
			"confirmation by an operator; run `aks-flex-node unbootstrap`"},
		{"a deletion is ignored", kept(RefusedByPolicy), False, RefusedByPolicy, OwnerMachine,
			"which the policy of this machine ignores"},
		{"the provider is polled", with(func(e *Evidence) { e.Upkeep.Polls = &Polls{} }), True,
			"AsExpected", "", ""},
		{"a drain", waits(drain), False, DrainBlocked, OwnerWorkload,
			"cannot evict these pods: default/db; since 2026-11-21T11:00:00Z, next attempt by " +
				"2026-11-21T13:00:00Z; the owner of the workload can help"},
		{"many pods", waits(long), False, DrainBlocked, OwnerWorkload,
			"...; since 2026-11-21T11:00:00Z, next attempt by 2026-11-21T13:00:00Z; the owner of"},
		{"a change goes on", with(func(e *Evidence) {
			e.Waiting, e.Transition = &drain, &transition.Transition{Kind: "change", Phase: "gate"}
		}), False, DrainBlocked, OwnerWorkload, "default/db"},
	})
}

// What a join could not download explains why the services do not run.
func TestServicesWithoutDownload(t *testing.T) {
	e := with(func(e *Evidence) {
		e.Containerd, e.Kubelet = Answered(Service{}, nil), Answered(Service{}, nil)
		e.Waiting = &Waiting{Reason: DownloadFailed, Message: "cannot get runc", Owner: OwnerNetwork}
		e.Transition = &transition.Transition{Kind: "join", Phase: "apply"}
	})
	e.Healthz = Tried(errors.New("connection refused"))
	for _, name := range []string{ContainerdRunning, KubeletRunning, KubeletHealthy} {
		check(t, name, []expect{
			{"a join", e, False, DownloadFailed, OwnerNetwork, "cannot get runc"},
		})
	}
	e.Transition = nil
	check(t, KubeletRunning, []expect{{"a node", e, False, "NotRunning", OwnerMachine, ""}})
}
