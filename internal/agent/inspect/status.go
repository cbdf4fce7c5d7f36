package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/history"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Status describes the node: its generation, its conditions, and its drift.
type Status struct {
	State      State  `json:"state"`
	NodeName   string `json:"nodeName"`
	Server     string `json:"server"`
	Identity   string `json:"identity"`             // kubelet's authentication (config.AuthMode)
	ArcMachine string `json:"arcMachine,omitempty"` // the ARM id of the Arc machine
	Joined     bool   `json:"joined"`
	// Ready is the status of the condition NodeReady: True, False or Unknown. Reason is its message.
	Ready      string   `json:"ready"`
	Reason     string   `json:"reason,omitempty"`
	Generation string   `json:"generation"`
	Kubernetes string   `json:"kubernetes"`
	Containerd string   `json:"containerd"`
	Runc       string   `json:"runc"`
	CNI        string   `json:"cni"`
	NPD        string   `json:"npd"`
	PodCIDRs   []string `json:"podCIDRs,omitempty"`
	// Conditions are the node's conditions, in the order of the layers.
	Conditions []health.Condition `json:"conditions"`
	Drift      []state.Line       `json:"drift"`
	// Pending are the remaining changes of a transition; drift is unknown then.
	Pending []state.Line `json:"pending,omitempty"`
	// DriftPolicy is the policy for drift; Runs are the running versions.
	DriftPolicy string                 `json:"driftPolicy"`
	Runs        Versions               `json:"runs,omitzero"`
	Transition  *transition.Transition `json:"transition,omitempty"`
	Rejected    []history.Rejection    `json:"rejected,omitempty"`
	Units       []Running              `json:"units"`
	// ConfigVersion is the version of the running flexNodeConfig, "" for none.
	ConfigVersion string `json:"configVersion,omitempty"`
	// Certificates holds the expiry of kubelet's certificates and the service principal's credential.
	Certificates map[string]time.Time `json:"certificates,omitempty"`
	// Service describes the work of the running service; nil if none runs.
	Service   *Work     `json:"service,omitempty"`
	CheckedAt time.Time `json:"checkedAt"`
	// OtherResolver is set if the machine has another resolver configuration than kubelet.
	OtherResolver bool `json:"-"`
}

// State is a machine's state in a word.
type State string

// The states of a machine.
const (
	NotJoined State = "notJoined"
	Joining   State = "joining"
	Leaving   State = "leaving"
	Changing  State = "changing"
	Sound     State = "healthy"
	Unsound   State = "unhealthy"
)

// Unjoined is the part of a Status for a machine that is not a node yet.
type Unjoined struct {
	State      State                  `json:"state"`
	Transition *transition.Transition `json:"transition,omitempty"`
}

// Running describes a service of the node.
type Running struct {
	Name   string `json:"name"`
	Active bool   `json:"active"`
}

// Healthy reports whether nothing needs attention.
func (s Status) Healthy() bool {
	stopped := slices.ContainsFunc(s.Units, func(u Running) bool { return !u.Active })
	ill := slices.ContainsFunc(s.Conditions, health.Condition.Ill)
	return !stopped && !ill && s.Ready == "True" && len(s.Drift) == 0
}

// StatusFile is the file of the daemon's last status.
const StatusFile = saved.RunDir + "/status.json"

func stateOf(s Status) State {
	switch {
	case !s.Joined:
		return Joining
	case s.Transition != nil:
		return Changing
	case s.Healthy():
		return Sound
	}
	return Unsound
}

// joiningError is the ErrNoNode of a machine that is joining, or whose join waits.
type joiningError string

func (e joiningError) Error() string      { return string(e) }
func (joiningError) Is(target error) bool { return target == ErrNoNode }

// ReadStatus checks the node now. For a machine that is not a node (ErrNoNode) it returns only the
// state, and the transition that makes it one.
func ReadStatus(ctx context.Context, a *Env) (Status, error) {
	h, err := open(ctx, a)
	if err != nil {
		return Status{}, err
	}
	waits := ""
	if w := ReadWaiting(a); w != nil {
		waits, _, _ = strings.Cut("; it waits: "+w.Message, "\n")
	}
	switch {
	case h.Saved.Live == nil && h.Saved.Transition != nil:
		t, is, finish, verb := h.Saved.Transition, Joining, "not a node yet", "bootstrap"
		if t.Kind == transition.Leave {
			is, finish, verb = Leaving, "no longer a node", "unbootstrap"
		}
		return Status{State: is, Transition: t}, joiningError(fmt.Sprintf(
			"this machine is %s: a %s is under way (phase %s)%s; run `aks-flex-node %s`", finish,
			t.Kind, t.Phase, waits, verb))
	case h.Saved.Live == nil:
		return Status{State: NotJoined}, joiningError(ErrNoNode.Error() + waits)
	}
	work := Working(ctx, a)
	s, err := StatusOf(ctx, h, work)
	s.Service = work
	return s, err
}

// StatusOf gathers the status of the applied or joining node.
func StatusOf(ctx context.Context, h *Node, known *Work) (Status, error) {
	g := cmp.Or(h.Saved.Applied, h.Saved.Live)
	c := g.Config
	plan, unseen := MachineDrift(ctx, h) // first: it needs no network
	e := EvidenceOf(ctx, h, known)
	drift := WithDrift(ctx, h, &e, plan, unseen, known)
	var pending []state.Line
	if changing(h) {
		pending, drift = drift, []state.Line{}
	}
	enrolled, err := access.Record(h.Saved)
	if err != nil {
		return Status{}, err
	}
	s := Status{
		NodeName: c.Agent.NodeName, Server: h.Saved.Bindings.Server,
		Identity: string(c.Azure.AuthMode()), ArcMachine: enrolled.MachineID,
		Joined: h.Saved.Joined(), Generation: g.ID,
		Kubernetes: c.Kubernetes.Version, Containerd: c.Containerd.Version, Runc: c.Runc.Version,
		CNI: c.CNI.Version, NPD: c.NPD.Version, DriftPolicy: c.Agent.DriftPolicy,
		PodCIDRs: h.Saved.Bindings.PodCIDRs, Drift: drift, Pending: pending,
		Transition: h.Saved.Transition,
		Rejected:   h.Saved.Rejected, CheckedAt: time.Now().UTC().Truncate(time.Second),
		ConfigVersion: Source(h.Env).Applied.ConfigVersion, Certificates: expiries(h, c),
		Units: running(e),
	}
	if m := e.Machine; m != nil && refusal(h, nil) == nil { // else a change cannot begin
		s.OtherResolver = m.ResolvConf != "" && m.ResolvConf != g.Facts.ResolvConf
	}
	if i := e.Node.Value.Status.NodeInfo; e.Node.Err == nil {
		s.Runs = Versions{
			Kubelet:    strings.TrimPrefix(i.KubeletVersion, "v"),
			Containerd: strings.TrimPrefix(i.ContainerRuntimeVersion, "containerd://"),
			Kernel:     i.KernelVersion, OS: i.OSImage,
		}
	}
	s.Conditions = health.Evaluate(health.Watch, e)
	// Reading the journal runs a program.
	if slices.ContainsFunc(s.Conditions, health.Condition.Explained) {
		WithLogs(ctx, h, &e)
		s.Conditions = health.Evaluate(health.Watch, e)
	}
	for _, condition := range s.Conditions {
		if condition.Type == health.NodeReady {
			s.Ready, s.Reason = string(condition.Status), condition.Message
		}
	}
	s.State = stateOf(s)
	return s, nil
}

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

func isComparable(h *Node) bool {
	return h.Saved.Applied != nil && h.Saved.Applied.Config.Agent.DetectsDrift()
}

// DriftPolicy returns the policy for drift of a thing.
func DriftPolicy(h *Node, key state.Key) string {
	return h.Saved.Applied.Config.Agent.DriftPolicyOf(KindOf(string(key)))
}

// changing reports whether a transition is changing the machine away from its applied state.
func changing(h *Node) bool {
	t := h.Saved.Transition
	return t != nil && (t.Touched || t.Kind == transition.Rollback)
}

// compared returns the generation to compare the machine with: the applied one, or a change's.
func compared(h *Node) *generation.Generation {
	if changing(h) {
		if to, err := h.Saved.Generations.Load(h.Saved.Transition.To); err == nil {
			return &to
		}
	}
	return h.Saved.Applied
}

// MachineDrift returns the drift of the machine, and an error if not all was observed in time.
func MachineDrift(ctx context.Context, h *Node) (state.Plan, error) {
	if !isComparable(h) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*AnswerTimeout)
	defer cancel()
	return DriftPlan(ctx, h, compared(h), AnswerTimeout)
}

// WithDrift adds the drift of the machine (plan; unseen is the error of observing the rest) and of
// its Node to the evidence, and returns the drift to report.
func WithDrift(
	ctx context.Context, h *Node, e *health.Evidence, plan state.Plan, unseen error, known *Work,
) []state.Line {
	e.Observed = health.Tried(errors.Join(unseen, e.Observed.Err))
	if !isComparable(h) {
		return []state.Line{}
	}
	told := func(list []state.Line) []state.Line {
		return slices.DeleteFunc(list, func(d state.Line) bool {
			return DriftPolicy(h, d.Key) == config.DriftOff
		})
	}
	planned := told(state.Lines(append(plan, NodeDrift(ctx, h, compared(h).Config, e.Node)...)))
	if e.Drift = health.Answered(len(planned), nil); len(planned) == 0 {
		e.Drift.Err = unseen
	}
	e.BudgetExhausted = known != nil && slices.ContainsFunc(planned, func(d state.Line) bool {
		return slices.Contains(known.Exhausted, string(d.Key))
	})
	return append(planned, told(unplanned(h, *e))...)
}

// Versions are the running versions, as reported by kubelet.
type Versions struct {
	Kubelet    string `json:"kubelet,omitempty"`
	Containerd string `json:"containerd,omitempty"`
	Kernel     string `json:"kernel,omitempty"`
	OS         string `json:"os,omitempty"`
}

// History lists this machine's generations, the newest first, and a received but unapplied one.
func History(ctx context.Context, a *Env) ([]history.Past, error) {
	h, err := open(ctx, a)
	if err != nil {
		return nil, err
	}
	if h.Saved.Live == nil && h.Saved.Transition == nil {
		return nil, ErrNoNode
	}
	m := history.Memory{
		Generations: h.Saved.Generations, Rejected: h.Saved.Rejected, Applied: h.Saved.AppliedID(),
		Transition: h.Saved.Transition, Received: a.Records().BundleResource(),
		Runs: Source(a).Applied,
	}
	if m.Proved, err = h.Saved.ReadHistory(); err != nil {
		return nil, err
	}
	if m.Previous, err = h.Saved.Generations.Target(ctx, generation.Previous); err != nil {
		return nil, err
	}
	m.Digest, _ = a.Records().BundleDigest() // an unreadable one was not rejected
	if w := ReadWaiting(a); w != nil {
		m.Waits = w.Reason + ": " + w.Message
	}
	return m.Past(), nil
}

// Compare returns the differences between two kept generations, on this machine now.
func Compare(ctx context.Context, a *Env, from, to string) (history.Comparison, error) {
	h, err := open(ctx, a)
	if err != nil {
		return history.Comparison{}, err
	}
	if h.Saved.Live == nil {
		return history.Comparison{}, ErrNoNode
	}
	before, err := history.Find(ctx, h.Saved.Generations, cmp.Or(from, string(generation.Previous)))
	if err != nil {
		return history.Comparison{}, err
	}
	after, err := history.Find(ctx, h.Saved.Generations, cmp.Or(to, string(generation.Applied)))
	if err != nil {
		return history.Comparison{}, err
	}
	return history.Compare(before, after, func(g *generation.Generation) node.Bindings {
		b := h.Saved.Bound(h.Saved.Bindings.Bindings, g)
		b.AdminKubeconfig = Admin(h) // only the applied one has it, and the next one gets it
		return b
	}), nil
}

// Admin returns the administrator's kubeconfig that the node already has, "" for none.
func Admin(h *Node) config.Secret { return h.Saved.Secrets[h.Saved.AppliedID()].AdminKubeconfig }
