package inspect

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

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
	client, err := KubeletClient(ctx, h, h.Saved.ConfigOf(h.Saved.Live), h.Saved.At())
	if err != nil {
		return health.Answered(kube.Node{}, err)
	}
	defer client.Close()
	return health.Answered(client.Node(ctx, h.Saved.Live.Config.Agent.NodeName))
}

// NodeDrift is what differs of the Node object, as it was seen, from a configuration; nothing when
// the API server did not answer.
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
	client, err := KubeletClient(ctx, h, c, h.Saved.At())
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

// serviceTimeout bounds a connection to a Service.
const serviceTimeout = 3 * time.Second

// services connects from this machine to the cluster's own Services: to the API server's, and to
// DNS over TCP, at the address that pods are told. It sends nothing.
func services(
	ctx context.Context, h *Node, client *kube.Client, c config.Config,
) (health.Services, error) {
	api, err := client.Service(ctx, "default", "kubernetes")
	if err != nil {
		return health.Services{}, err
	}
	dns, err := client.Service(ctx, "kube-system", "kube-dns")
	if err != nil && !kube.NodeMissing(err) { // DNS may have another name
		return health.Services{}, err
	}
	found := health.Services{DNS: dns.Spec.ClusterIP, Tried: []health.Connection{
		{Service: "default/kubernetes", Address: addressOf(api)},
		{Service: "DNS", Address: net.JoinHostPort(c.Node.Kubelet.DNSServiceIP, "53")},
	}}
	var all sync.WaitGroup
	for i := range found.Tried {
		all.Go(func() { found.Tried[i].Err = connect(ctx, h, found.Tried[i].Address) })
	}
	all.Wait()
	return found, nil
}

// addressOf is where a Service answers.
func addressOf(s corev1.Service) string {
	port := int32(443)
	if len(s.Spec.Ports) > 0 {
		port = s.Spec.Ports[0].Port
	}
	return net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(port)))
}

func connect(ctx context.Context, h *Node, address string) error {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	dial := h.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// WithServices adds whether Services can be reached, where the API server answers.
func WithServices(ctx context.Context, h *Node, c config.Config, at Cluster, e *health.Evidence) {
	if !e.Node.OK() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ClusterTimeout)
	defer cancel()
	client, err := KubeletClient(ctx, h, c, at)
	if err != nil {
		e.Services = health.Answered(health.Services{}, err)
		return
	}
	defer client.Close()
	e.Services = health.Answered(services(ctx, h, client, c))
}
