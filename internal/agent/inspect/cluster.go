package inspect

import (
	"context"
	"errors"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/nodeobject"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// SeeNode asks the API server for the Node object of a machine that was a Ready Node.
func SeeNode(ctx context.Context, h *Node) health.Answer[kube.Node] {
	if !h.Saved.Joined() {
		return health.Answer[kube.Node]{}
	}
	ctx, cancel := context.WithTimeout(ctx, ClusterTimeout)
	defer cancel()
	client, err := access.Client(ctx, h, h.Saved.ConfigOf(h.Saved.Live), h.Saved.At())
	if err != nil {
		return health.Answered(kube.Node{}, err)
	}
	defer client.Close()
	return health.Answered(client.Node(ctx, h.Saved.Live.Config.Agent.NodeName))
}

// NodeDrift returns the differences of a Node as it was seen; nothing when the API server did not
// answer.
func NodeDrift(
	ctx context.Context, h *Node, c config.Config, seen health.Answer[kube.Node],
) state.Plan {
	if !h.Saved.Joined() || !seen.Asked {
		return nil
	}
	journal, err := apply.ReadJournal(h.Reader, saved.StateDir, saved.NodeLedgerFile)
	if err != nil {
		return nil
	}
	object := &nodeobject.Host{Node: c.Agent.NodeName}
	object.See(seen.Value, seen.Err)
	view := apply.View{Host: object, Ledger: journal.Ledger()}
	plan, _, err := view.Plan(ctx, node.NodeObject(c, h.Saved.Bindings.Bindings), nil)
	if err != nil {
		return nil
	}
	return plan
}

// ErrNodeMissing reports that the Node object is not in the cluster.
var ErrNodeMissing = errors.New("the Node object is missing")

// WaitDeleted returns when the Node object is deleted; ErrNodeMissing where it is not found.
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
	err = client.WaitDeleted(ctx, c.Agent.NodeName)
	if kube.NodeMissing(err) {
		return ErrNodeMissing
	}
	return err
}
