package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

const (
	// defaultSettling is the time that kubelet must have been one process before a change is
	// committed. One that ends itself does so within a second or two of its start.
	defaultSettling = 5 * time.Second
	// AnswerTimeout bounds each question, and each gathering of what the cluster says.
	AnswerTimeout = 10 * time.Second
	// versionStands is for how long an API server's version stands that works with kubelet's.
	versionStands = time.Hour
)

// NewEvidence returns the evidence that every check begins with. Only root may be able to change
// the program that root and kubelet run.
func NewEvidence(h *Node, c config.Config) health.Evidence {
	_, role := access.Required(c)
	today := ""
	if h.Today != nil {
		today = h.Today().UTC().Format(time.DateOnly)
	}
	return health.Evidence{
		Now: time.Now(), Today: today, Trust: health.Tried(h.TrustedFile(h.Program)),
		Wanted: health.Wanted{
			Config: c, ArcRole: role, Settling: cmp.Or(h.Settling, defaultSettling),
		}}
}

// podLogs has a directory for each pod of the node, named NAMESPACE_NAME_UID, as long as kubelet
// has the pod.
const podLogs = "/var/log/pods"

// MachineEvidence adds what is on the machine. What is ours does not count as foreign.
func MachineEvidence(ctx context.Context, h *Node, seen host.Facts, e *health.Evidence) error {
	c := e.Wanted.Config
	m := &health.Machine{
		Facts: seen, Installed: h.ledger.Exists(), Barriers: firewallEvidence(ctx, h, c, seen),
	}
	logs, err := h.List(podLogs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.Log.Debug("cannot list the pods of this node", "error", err)
	}
	m.Tunnel = slices.ContainsFunc(logs, func(pod string) bool {
		return strings.HasPrefix(pod, "kube-system_konnectivity-agent-")
	})
	own := len(ForeignNetworks(seen.CNIConfigs)) == 0
	if own && (c.CNI.PodCIDR != "" || h.Saved.Joined()) {
		m.PodCIDRs = Subnets(h, c)
	}
	ledger := h.ledger.Ledger()
	for _, dir := range []string{c.Paths.Kubernetes.KubeletDir, "/var/lib/containerd"} {
		key := state.PathKey(dir)
		if _, ours := ledger.Entry(key); ours {
			continue
		}
		is, err := h.Observe(ctx, key)
		if err != nil {
			return err
		}
		if at := state.LeadsTo(is); at != nil && !at.Empty {
			m.ForeignDirectories = append(m.ForeignDirectories, dir)
		}
	}
	e.Machine = m
	return nil
}

// SeeMachine adds what is on the machine now.
func SeeMachine(ctx context.Context, h *Node, e *health.Evidence) error {
	seen, err := h.Facts(ctx, Query(h, e.Wanted.Config))
	if err != nil {
		return err
	}
	return MachineEvidence(ctx, h, seen, e)
}

// ServiceEvidence gathers the state of containerd and kubelet.
func ServiceEvidence(ctx context.Context, h *Node, e *health.Evidence) {
	e.Kubelet = health.Answered(service(ctx, h, node.KubeletUnit))
	healthz := h.Healthz
	if healthz == nil {
		healthz = func(ctx context.Context) error { return kube.Healthz(ctx, kube.KubeletHealthz) }
	}
	e.Healthz = health.Tried(healthz(ctx))
	withRuntime(ctx, h, e)
}

func service(ctx context.Context, h *Node, unit string) (health.Service, error) {
	is, err := h.UnitStatus(ctx, unit)
	if err != nil {
		return health.Service{}, fmt.Errorf("cannot check %s: %w", unit, err)
	}
	return health.Service{
		Active: is.Running(), PID: is.MainPID, Restarts: is.Restarts, Since: is.Since,
	}, nil
}

// WithLogs adds the services' last log lines, which are read only when something is wrong.
func WithLogs(ctx context.Context, h *Node, e *health.Evidence) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	e.Containerd.Value.Log = h.Journal(ctx, node.ContainerdUnit, 50)
	e.Kubelet.Value.Log = h.Journal(ctx, node.KubeletUnit, 50)
}

// ClusterEvidence gathers the cluster's answers about the node and its Services.
func ClusterEvidence(ctx context.Context, h *Node, at Cluster, e *health.Evidence) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	client, err := access.Client(ctx, h, e.Wanted.Config, at)
	if err != nil {
		e.Probe = health.Tried(err)
		return
	}
	defer client.Close()
	if NodeEvidence(ctx, h, client, at, e) {
		e.Pods = health.Answered(client.PodsOn(ctx, e.Wanted.Agent.NodeName))
		ServicesEvidence(ctx, h, client, e)
	}
}

// ServicesEvidence is whether Services can be reached, where there is a Node.
func ServicesEvidence(ctx context.Context, h *Node, client *kube.Client, e *health.Evidence) {
	if e.Node.OK() {
		dns := e.Wanted.Node.Kubelet.DNSServiceIP
		e.Services = health.Answered(client.TryServices(ctx, dns, h.Dial))
	}
}

type knownVersion struct {
	server, kubelet, version string
	at                       time.Time
}

// versionEvidence asks for the API server's version, once in a while if it works with kubelet's.
func versionEvidence(
	ctx context.Context, h *Node, client *kube.Client, at Cluster, kubelet string,
) health.Answer[string] {
	if last := h.version; last.server == at.Server && last.kubelet == kubelet &&
		time.Since(last.at) < versionStands {
		return health.Answered(last.version, nil)
	}
	is := health.Answered(client.ServerVersion(ctx))
	if is.OK() && health.Works(kubelet, is.Value) {
		h.version = knownVersion{at.Server, kubelet, is.Value, time.Now()}
	}
	return is
}

// NodeEvidence asks for all but the pods, and reports whether the API server answers.
func NodeEvidence(
	ctx context.Context, h *Node, client *kube.Client, at Cluster, e *health.Evidence,
) bool {
	name, version := e.Wanted.Agent.NodeName, e.Wanted.Kubernetes.Version
	e.Node = health.Answered(client.Node(ctx, name))
	if e.Node.Err != nil && !kube.NodeMissing(e.Node.Err) && !kube.Answered(e.Node.Err) {
		return false
	}
	atOnce(ctx,
		func(ctx context.Context) { e.Credential = health.Answered(client.WhoAmI(ctx)) },
		func(ctx context.Context) { e.Lease = health.Answered(client.Lease(ctx, name)) },
		func(ctx context.Context) { e.ServerVersion = versionEvidence(ctx, h, client, at, version) },
	)
	return true
}

// ProbeEvidence goes the way to the API server layer by layer, with the credential that there is.
func ProbeEvidence(ctx context.Context, h *Node, at Cluster, e *health.Evidence) {
	c := e.Wanted.Config
	target := kube.Target{Server: at.Server, CA: []byte(at.CA), Options: h.Options(c)}
	target.Entra = c.Azure.BootstrapToken == nil
	// With its certificate kubelet no longer needs what it joined with. An Arc identity may not
	// exist before the machine is connected.
	arc := c.Azure.AuthMode() == config.AuthArc && !EnrolledBefore(h)
	if !arc && (c.Azure.ShowsToken() || !access.Held(h, c)) {
		token, err := access.Shown(ctx, h, c)
		if err != nil {
			e.Probe = health.Tried(err)
			return
		}
		target.Token = token
	}
	e.Probe = health.Tried(kube.Probe(ctx, target))
}

// EvidenceOf is all that is known of a node, but for its drift; known is what the running service
// alone knows. Questions are asked at once, each with a bound.
func EvidenceOf(ctx context.Context, h *Node, known *Work) health.Evidence {
	c, at := h.Saved.ConfigOf(cmp.Or(h.Saved.Applied, h.Saved.Live)), h.Saved.At()
	e := NewEvidence(h, c)
	e.Rejected, e.Waiting, e.Transition = refusal(h, known), ReadWaiting(h.Env), h.Saved.Transition
	if p := Pause(h.Env); p != nil {
		e.Paused = health.PauseText(p.Until, p.Reason)
	}
	WithServing(h, &e)
	if last, swept := Swept(h); swept {
		e.Damaged = health.Answered(last.Damaged, nil)
	}
	var unseen error
	atOnce(ctx,
		func(ctx context.Context) { unseen = withMachine(ctx, h, &e) },
		func(ctx context.Context) { e.Metadata = metadataEvidence(ctx, h, c) },
		func(ctx context.Context) { ServiceEvidence(ctx, h, &e) },
		func(ctx context.Context) { e.Detector = health.Answered(service(ctx, h, node.NPDUnit)) },
		func(ctx context.Context) { ClusterEvidence(ctx, h, at, &e) },
		func(ctx context.Context) { e.Arc = arcEvidence(ctx, h, c) },
	)
	if e.Upkeep != nil && known != nil {
		e.Upkeep.Polls = known.Polls
	}
	e.Observed = health.Tried(errors.Join(unseen, e.Containerd.Err, e.Kubelet.Err, e.Detector.Err))
	atOnce(ctx,
		func(ctx context.Context) { e.Authorised = roleEvidence(ctx, h, at, &e) },
		func(ctx context.Context) {
			if e.Node.Err != nil && !kube.NodeMissing(e.Node.Err) {
				ProbeEvidence(ctx, h, at, &e)
			}
		},
	)
	return e
}

// atOnce asks several questions at once, and returns when each is answered or out of time.
func atOnce(ctx context.Context, questions ...func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, ask := range questions {
		all.Go(func() { ask(ctx) })
	}
	all.Wait()
}

// withMachine adds what is found on the machine. Without it conditions are Unknown.
func withMachine(ctx context.Context, h *Node, e *health.Evidence) error {
	seen, err := h.Facts(ctx, Query(h, e.Wanted.Config))
	if err != nil {
		return err
	}
	Upkeep(ctx, h, h.Saved.At(), seen, e)
	return MachineEvidence(ctx, h, seen, e)
}

func judge(ctx context.Context, h *Node, e health.Evidence) []health.Condition {
	conditions := health.Evaluate(health.Watch, e)
	// Reading the journal runs a program.
	if slices.ContainsFunc(conditions, health.Condition.Explained) {
		WithLogs(ctx, h, &e)
		conditions = health.Evaluate(health.Watch, e)
	}
	return conditions
}

// refusal is why the configuration that is wanted is not in force; nil when it is.
func refusal(h *Node, known *Work) *health.Rejection {
	for _, r := range slices.Backward(h.Saved.Rejected) {
		// The applied document is accepted, also where it failed for other facts of the machine.
		if !r.Past && (h.Saved.Applied == nil || r.Received != h.Saved.Applied.Received) {
			return &health.Rejection{Version: r.Generation[:12], Reason: r.Reason, At: r.At}
		}
	}
	if known == nil {
		return nil
	}
	return known.Refused
}

// withRuntime adds how containerd runs and serves kubelet, asked again without an answer.
func withRuntime(ctx context.Context, h *Node, e *health.Evidence) {
	e.Containerd = health.Answered(service(ctx, h, node.ContainerdUnit))
	if !e.Containerd.OK() || !e.Containerd.Value.Active {
		return
	}
	ask := h.Runtime
	if ask == nil {
		ask = func(ctx context.Context) error {
			return kube.Runtime(ctx, h.Path(node.ContainerdSocket))
		}
	}
	for {
		e.Runtime = health.Tried(ask(ctx))
		if !errors.Is(e.Runtime.Err, kube.ErrRuntimeSilent) {
			h.unanswered = 0
			return
		}
		h.unanswered++
		if e.Unanswered = h.unanswered; h.InService || h.unanswered > 1 {
			return
		}
	}
}

// runtimeLost says how a running container runtime does not serve kubelet; "" where it does.
func runtimeLost(e health.Evidence) string {
	switch {
	case e.Hangs():
		return "not answering"
	case errors.Is(e.Runtime.Err, kube.ErrNoRuntimeService):
		return "running without it"
	}
	return ""
}

// RuntimeLost reports whether the container runtime runs and does not serve kubelet.
func RuntimeLost(ctx context.Context, h *Node) bool {
	var e health.Evidence
	withRuntime(ctx, h, &e)
	return runtimeLost(e) != ""
}
