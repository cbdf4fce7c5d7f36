package inspect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/nodeobject"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Drift compares the machine and its Node with the applied state. A silent API server is no drift.
func Drift(ctx context.Context, a *Env) (Report, error) {
	h, err := open(ctx, a)
	if err != nil {
		return Report{}, err
	}
	if h.Saved.Applied == nil {
		return Report{}, ErrNoNode
	}
	changes, err := DriftOf(ctx, h)
	return Report{Changes: changes}, err
}

// DriftOf lists all drift from the applied generation, even with an apply.BlindError.
func DriftOf(ctx context.Context, h *Node) ([]state.Line, error) {
	plan, err := DriftPlan(ctx, h, h.Saved.Applied, 0)
	if _, blind := errors.AsType[*apply.BlindError](err); err != nil && !blind {
		return nil, err
	}
	e := health.Evidence{Node: SeeNode(ctx, h)}
	withArc(ctx, h, &e)
	withRuntime(ctx, h, &e)
	plan = append(plan, NodeDrift(ctx, h, h.Saved.Applied.Config, e.Node)...)
	return append(state.Lines(plan), unplanned(h, e)...), err
}

// unplanned lists drift that is in no plan: pod subnets, store, Arc, container runtime.
func unplanned(h *Node, e health.Evidence) []state.Line {
	var list []state.Line
	if is := OtherSubnets(h, e.Node); len(is) > 0 {
		list = append(list, state.Line{Key: SubnetsKey, Step: state.CNI,
			Action:   "use the pod subnets of the Node",
			Expected: strings.Join(is, ", "), Found: strings.Join(h.Saved.Bindings.PodCIDRs, ", ")})
	}
	swept, _ := Swept(h)
	for _, name := range swept.Damaged {
		var step state.Step
		for _, item := range LinksInto(h.Saved.Applied, name) {
			step = item.Step
		}
		list = append(list, state.Line{Key: StoreKey(name), Step: step,
			Action:   "fetch " + name + " again",
			Expected: "unchanged since it was downloaded and verified", Found: "damaged"})
	}
	if found := arcLost(e); found != "" {
		list = append(list, state.Line{Key: ArcKey, Step: state.Arc,
			Action:   "enrol the machine with Azure Arc again",
			Expected: "connected and authorised", Found: found})
	}
	if found := runtimeLost(e); found != "" {
		list = append(list, state.Line{Key: state.UnitKey(node.ContainerdUnit), Step: state.Start,
			Action:   "restart " + node.ContainerdUnit,
			Expected: "running with its CRI plugin", Found: found})
	}
	return list
}

// DriftPlan returns the changes needed on the machine, as far as it can be observed: the rest is an
// apply.BlindError. Patience bounds the observation; 0 is no bound.
func DriftPlan(
	ctx context.Context, h *Node, g *generation.Generation, patience time.Duration,
) (state.Plan, error) {
	b, spared := Standing(h, g, h.Saved.Bindings.Bindings)
	b, err := WithArc(ctx, h, g.Node, b)
	if err != nil {
		return nil, err
	}
	spared = slices.Concat(spared, StandingArc(h), StandingSwap(h, g.Config))
	view := apply.View{Host: h.Reader, Ledger: h.ledger.Ledger(), Patience: patience}
	plan, unknown, err := view.Plan(ctx, node.Bind(g.Node, h.Saved.Bound(b, g)), spared)
	if err == nil {
		err = apply.Blind(unknown)
	}
	return plan, err
}

// Standing returns the bindings for comparing and repairing a node, and the items to leave alone:
// if a foreign pod network is or was there, ours is neither wanted nor removed.
func Standing(h *Node, g *generation.Generation, b node.Bindings) (node.Bindings, state.Desired) {
	if b.ForeignCNI = Foreign(h, g.Config, b.ForeignCNI); len(b.ForeignCNI) == 0 {
		return b, nil
	}
	return b, slices.DeleteFunc(slices.Clone(g.Node), func(item state.Item) bool {
		return !node.IsOwnNetwork(item.Only)
	})
}

// Report is a plan for people and programs.
type Report struct {
	Changes   []state.Line `json:"changes"`
	Downloads []Download   `json:"downloads,omitempty"`
	Hosts     []string     `json:"hosts,omitempty"`
	Drains    bool         `json:"drains,omitempty"` // the node is drained first
}

// Download is an artifact that is not in the store yet. Size is 0 if unknown.
type Download struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"url"`
	Size    int64  `json:"size"`
}

// KindOf returns the kind of a thing that drifts: path, unit, sysctl, node, store.
func KindOf(key string) string {
	kind, _, _ := strings.Cut(key, ":")
	return kind
}

// SubnetsKey is the key of the pod subnets as a thing that can drift.
const SubnetsKey state.Key = "node:subnets"

// OtherSubnets returns a Node's pod subnets if they differ from those of the node's own network.
func OtherSubnets(h *Node, seen health.Answer[kube.Node]) []string {
	g := h.Saved.Applied
	if !seen.OK() || g == nil || g.Config.CNI.PodCIDR != "" || len(h.Saved.Bindings.PodCIDRs) == 0 {
		return nil
	}
	is := seen.Value.Spec.PodCIDRs
	b, _ := Standing(h, g, h.Saved.Bindings.Bindings)
	if len(b.ForeignCNI) > 0 || slices.Equal(is, h.Saved.Bindings.PodCIDRs) {
		return nil
	}
	return is
}

// SweepFile is in RunDir: a machine is swept again after a reboot.
const SweepFile = "sweep.json"

// Sweep holds the results of the last verification of a generation's artifacts.
type Sweep struct {
	At         time.Time `json:"at"`
	Generation string    `json:"generation"`
	// Damaged names artifacts that differ from the verified ones, Left those still to be read.
	Damaged []string `json:"damaged"`
	Left    []string `json:"left,omitempty"`
}

// Swept returns the results of the last sweep of the applied generation; false if there was none.
func Swept(h *Node) (Sweep, bool) {
	var last Sweep
	known, err := volatile(h.Env).Load(SweepFile, &last)
	if err != nil || !known || h.Saved.Applied == nil || last.Generation != h.Saved.Applied.ID {
		return Sweep{}, false
	}
	return last, true
}

// StoreKey returns the key of an artifact as a thing that can drift.
func StoreKey(name string) state.Key { return state.Key("store:" + name) }

// LinksInto returns the links of a generation into an artifact.
func LinksInto(g *generation.Generation, name string) []state.Item {
	return slices.DeleteFunc(slices.Clone(g.Node), func(item state.Item) bool {
		link, ok := item.Resource.(state.Link)
		return !ok || !strings.HasPrefix(link.Target, g.Facts.Store[name]+"/")
	})
}

// Connect is access.Client or access.JoinClient.
type Connect func(context.Context, access.Machine, config.Config, Cluster) (*kube.Client, error)

// Ask makes one request to an API server, within AnswerTimeout.
func Ask[T any](
	ctx context.Context, h *Node, connect Connect, c config.Config, at Cluster,
	ask func(*kube.Client, context.Context) (T, error),
) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	client, err := connect(ctx, h, c, at)
	if err != nil {
		return answer, err
	}
	defer client.Close()
	return ask(client, ctx)
}

// AskNode requests the Node of a configuration from an API server.
func AskNode(
	ctx context.Context, h *Node, connect Connect, c config.Config, at Cluster,
) health.Answer[kube.Node] {
	get := func(client *kube.Client, ctx context.Context) (kube.Node, error) {
		return client.Node(ctx, c.Agent.NodeName)
	}
	return health.Answered(Ask(ctx, h, connect, c, at, get))
}

// SeeNode requests the Node object of a machine that has been a Ready Node.
func SeeNode(ctx context.Context, h *Node) health.Answer[kube.Node] {
	if !h.Saved.Joined() {
		return health.Answer[kube.Node]{}
	}
	return AskNode(ctx, h, access.Client, h.Saved.ConfigOf(h.Saved.Live), h.Saved.At())
}

// NodeDrift returns the drift of an observed Node; nothing if it was not observed.
func NodeDrift(
	ctx context.Context, h *Node, c config.Config, seen health.Answer[kube.Node],
) state.Plan {
	if !h.Saved.Joined() || !seen.Asked {
		return nil
	}
	journal := apply.NewJournal(nil, saved.StateDir, saved.NodeLedgerFile)
	if journal.Read(h.Reader) != nil {
		return nil
	}
	object := &nodeobject.Host{Node: c.Agent.NodeName}
	object.See(seen.Value, seen.Err)
	view := apply.View{Host: object, Ledger: journal.Ledger()}
	// It makes no request, and so cannot fail.
	plan, _, _ := view.Plan(ctx, node.NodeObject(c, h.Saved.Bindings.Bindings), nil)
	return plan
}

// ErrNodeMissing reports that the Node object is not in the cluster.
var ErrNodeMissing = errors.New("the Node object is missing")

// WaitDeleted waits until the Node object is deleted; ErrNodeMissing if it does not exist.
func WaitDeleted(ctx context.Context, a *Env) error {
	h, err := open(ctx, a)
	if err != nil {
		return err
	}
	if h.Saved.Applied == nil || !h.Saved.Joined() {
		return ErrNoNode
	}
	c := h.Saved.ConfigOf(h.Saved.Applied)
	client, err := access.Client(ctx, h, c, h.Saved.At())
	if err != nil {
		return err
	}
	defer client.Close()
	if err = client.WaitDeleted(ctx, c.Agent.NodeName); kube.NodeMissing(err) {
		return ErrNodeMissing
	}
	return err
}
