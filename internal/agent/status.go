package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Status is how the node is: what it was made as, its conditions, and what has drifted.
type Status struct {
	NodeName   string `json:"nodeName"`
	Server     string `json:"server"`
	Identity   string `json:"identity"`             // how kubelet proves who it is: a config.AuthMode
	ArcMachine string `json:"arcMachine,omitempty"` // the ARM id of the Arc machine
	Joined     bool   `json:"joined"`
	// Ready is True, False or Unknown: the condition NodeReady, and its message.
	Ready      string   `json:"ready"`
	Reason     string   `json:"reason,omitempty"`
	Generation string   `json:"generation"`
	Kubernetes string   `json:"kubernetes"`
	Containerd string   `json:"containerd"`
	Runc       string   `json:"runc"`
	CNI        string   `json:"cni"`
	NPD        string   `json:"npd"`
	PodCIDRs   []string `json:"podCIDRs,omitempty"`
	// Conditions are all that is known of the node's health, in the order of the layers.
	Conditions []health.Condition `json:"conditions"`
	Drift      []Entry            `json:"drift"`
	// Pending are the changes that a transition under way still has to make; no drift is known then.
	Pending []Entry `json:"pending,omitempty"`
	// DriftPolicy is what is done about drift; Runs are the versions that run.
	DriftPolicy string                 `json:"driftPolicy"`
	Runs        Versions               `json:"runs,omitzero"`
	Transition  *transition.Transition `json:"transition,omitempty"`
	Rejected    []saved.Rejection      `json:"rejected,omitempty"`
	Units       []Running              `json:"units"`
	// ConfigVersion is the version of the flexNodeConfig that the node runs on, "" for none.
	ConfigVersion string `json:"configVersion,omitempty"`
	// Certificates are kubelet's, with when each expires.
	Certificates map[string]time.Time `json:"certificates,omitempty"`
	// Service is what the running service does; nil when none runs.
	Service   *Work     `json:"service,omitempty"`
	CheckedAt time.Time `json:"checkedAt"`
}

// Running is a service of the node.
type Running struct {
	Name   string `json:"name"`
	Active bool   `json:"active"`
}

// Healthy tells whether nothing needs attention.
func (s Status) Healthy() bool {
	for _, u := range s.Units {
		if !u.Active {
			return false
		}
	}
	ill := slices.ContainsFunc(s.Conditions, health.Condition.Ill)
	return !ill && s.Ready == "True" && len(s.Drift) == 0
}

// StatusFile is where the daemon keeps the status that it found last.
const StatusFile = saved.RunDir + "/status.json"

// Status checks the node now. It changes nothing.
func (a *Agent) Status(ctx context.Context) (Status, error) {
	h, err := a.openReadOnly(ctx)
	if err != nil {
		return Status{}, err
	}
	switch {
	case h.saved.Live == nil && h.saved.Transition != nil:
		return Status{}, fmt.Errorf("this machine is not a node yet: a %s is under way (phase %s)%s; "+
			"run `aks-flex-node bootstrap`", h.saved.Transition.Kind, h.saved.Transition.Phase,
			a.waitingText())
	case h.saved.Live == nil:
		return Status{}, errNoNode
	}
	work := a.working(ctx)
	s, err := h.status(ctx, known(work))
	s.Service = work
	return s, err
}

// watching is what only the daemon knows: the things that it no longer repairs, and why the
// configuration is not in force.
type watching struct {
	exhausted []string
	refused   *health.Rejection
	polls     *health.Polls
}

// known is what a running service has told; nil if none runs.
func known(w *Work) watching {
	if w == nil {
		return watching{}
	}
	return watching{exhausted: w.Exhausted, refused: w.Refused, polls: pollsOf(w)}
}

// status gathers the status of the applied node, or of the one that is joining.
func (h *home) status(ctx context.Context, known watching) (Status, error) {
	g := h.saved.Applied
	if g == nil {
		g = h.saved.Live
	}
	c := g.Config
	plan, unseen := h.machineDrift(ctx) // first: it needs no network
	e := h.evidenceOf(ctx, g)
	drift := entries(h.withDrift(ctx, &e, plan, unseen))
	h.withKnown(&e, drift, known)
	if h.comparable() {
		drift = slices.Concat(drift, h.subnetDrift(e.Node), h.storeDrift(), arcDrift(e),
			runtimeDrift(e))
		drift = slices.DeleteFunc(drift, func(d Entry) bool {
			return h.driftPolicy(d.Key) == config.DriftOff
		})
	}
	var pending []Entry
	if h.changing() {
		pending, drift = drift, []Entry{}
	}
	s := Status{
		NodeName: c.Agent.NodeName, Server: h.saved.Bindings.Server, Identity: string(c.Azure.AuthMode()),
		Joined: h.saved.Joined(), Generation: g.ID,
		Kubernetes: c.Kubernetes.Version, Containerd: c.Containerd.Version, Runc: c.Runc.Version,
		CNI: c.CNI.Version, NPD: c.NPD.Version, DriftPolicy: c.Agent.DriftPolicy,
		PodCIDRs: h.saved.Bindings.PodCIDRs, Drift: drift, Pending: pending,
		Transition: h.saved.Transition,
		Rejected:   h.saved.Rejected, CheckedAt: now().UTC().Truncate(time.Second),
		ConfigVersion: h.appliedResource().ConfigVersion, Certificates: h.expiries(c),
		Units: running(e),
	}
	var enrolled arc.Record
	if _, err := h.saved.Load(saved.ArcFile, &enrolled); err != nil {
		return Status{}, err
	}
	s.ArcMachine = enrolled.MachineID
	if e.Node.Err == nil {
		s.Runs = versionsOf(e.Node.Value)
	}
	s.Conditions = h.judge(ctx, e)
	for _, condition := range s.Conditions {
		if condition.Type == health.NodeReady {
			s.Ready, s.Reason = string(condition.Status), condition.Message
		}
	}
	return s, nil
}

// running returns which services run, of those that systemd answers for.
func running(e health.Evidence) []Running {
	var units []Running
	add := func(name string, of health.Answer[health.Service]) {
		if of.OK() {
			units = append(units, Running{Name: name, Active: of.Value.Active})
		}
	}
	add(node.ContainerdUnit, e.Containerd)
	add(node.KubeletUnit, e.Kubelet)
	add(node.NPDUnit, e.Detector)
	return units
}

// comparable tells whether the machine is compared with what was applied: while a join is under way
// there is nothing to compare with.
func (h *home) comparable() bool {
	return h.saved.Applied != nil && h.saved.Applied.Config.Agent.DetectsDrift()
}

// driftPolicy is what is done about a thing that drifts.
func (h *home) driftPolicy(key state.Key) string {
	return h.saved.Applied.Config.Agent.DriftPolicyOf(kindOf(string(key)))
}

// changing reports whether a transition is making the machine another one than was applied.
func (h *home) changing() bool {
	t := h.saved.Transition
	return t != nil && (t.Touched || t.Kind == transition.Rollback)
}

// compared returns the generation that the machine is compared with: the applied one, or the one that
// a change makes of the machine.
func (h *home) compared() *generation.Generation {
	if h.changing() {
		if to, err := h.saved.Generations.Load(h.saved.Transition.To); err == nil {
			return &to
		}
	}
	return h.saved.Applied
}

// comparing bounds the comparison of the machine with the applied node, but for its packages.
const comparing = 10 * time.Second

// machineDrift returns what differs on the machine from the node that it is to be, as far as it
// could be observed in time; the error says what could not.
func (h *home) machineDrift(ctx context.Context) (state.Plan, error) {
	if !h.comparable() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*comparing)
	defer cancel()
	h.engine.Patience = comparing
	return h.drift(ctx, h.compared())
}

// withDrift adds to the evidence how the machine and its Node, as it was seen, differ from the node
// that it is to be, and returns that: plan is what was found on the machine, unseen why not all
// was.
func (h *home) withDrift(
	ctx context.Context, e *health.Evidence, plan state.Plan, unseen error,
) state.Plan {
	e.Observed = health.Tried(errors.Join(unseen, e.Observed.Err))
	if !h.comparable() {
		return nil
	}
	plan = append(plan, h.nodeDrift(ctx, h.compared().Config, e.Node)...)
	plan = slices.DeleteFunc(plan, func(c state.Change) bool {
		return h.driftPolicy(c.To.Key()) == config.DriftOff
	})
	if e.Drift = health.Answered(len(plan), nil); len(plan) == 0 {
		e.Drift.Err = unseen
	}
	return plan
}

// keepStatus writes the status file, in which a condition is as old as its status and reason.
func (a *Agent) keepStatus(ctx context.Context, s *Status) error {
	var before Status
	if data, err := a.Machine.ReadFile(StatusFile); err == nil {
		if err := json.Unmarshal(data, &before); err != nil {
			a.Log.Debug("cannot read the previous status", "error", err)
		}
	}
	s.Conditions = health.Merge(before.Conditions, s.Conditions)
	body, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	file := state.NewFile(StatusFile, 0o600, string(body)+"\n")
	return a.Machine.Set(ctx, state.Change{To: file}, nil)
}
