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
	// defaultSettling is the min time for which kubelet must have run as one process before a change
	// is committed. A kubelet that crashes does so within a second or two of its start.
	defaultSettling = 5 * time.Second
	// AnswerTimeout bounds each request, and each gathering of answers of the cluster.
	AnswerTimeout = 10 * time.Second
)

// NewEvidence returns the initial evidence of every check. Only root may be able to change the
// program that root and kubelet run.
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

const podLogs = "/var/log/pods" // has a directory NAMESPACE_NAME_UID for each pod of kubelet

// MachineEvidence adds evidence of the machine. Our own things do not count as foreign.
func MachineEvidence(ctx context.Context, h *Node, seen host.Facts, e *health.Evidence) error {
	c := e.Wanted.Config
	m := &health.Machine{
		Facts: seen, Installed: h.ledger.Exists(), Barriers: firewallEvidence(ctx, h, c, seen),
		Server: h.Saved.Bindings.Server,
	}
	logs, err := h.Reader.List(podLogs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.Log.Debug("cannot list the pods of this node", "error", err)
	}
	m.Tunnel = slices.ContainsFunc(logs, func(pod string) bool {
		return strings.HasPrefix(pod, "kube-system_konnectivity-agent-")
	})
	configs := seen.CNIConfigs
	if len(h.Saved.Bindings.ForeignCNI) == 0 { // ours is or will be there
		configs = append(configs, node.ConflistName)
	}
	if len(configs) > 0 && engines.MatchString(slices.Min(configs)) {
		m.EngineNetwork = c.Paths.CNI.ConfDir + "/" + slices.Min(configs)
	}
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
		is, err := h.Reader.Observe(ctx, key)
		if err != nil {
			return err
		}
		if at := state.LeadsTo(is); at != nil && !at.Empty {
			m.ForeignDirectories = append(m.ForeignDirectories, dir)
		}
	}
	for _, dir := range []string{"/etc", "/usr/lib"} { // kubeadm's package has it
		file := dir + "/systemd/system/kubelet.service.d/10-kubeadm.conf"
		text, err := h.Reader.ReadFile(file)
		if strings.Contains(string(text), "ExecStart=") {
			m.Units = append(m.Units, host.InstalledUnit{Name: node.KubeletUnit, Path: file})
		}
		if !errors.Is(err, fs.ErrNotExist) { // it hides the other (systemd.unit(5))
			break
		}
	}
	e.Machine = m
	return nil
}

// SeeMachine adds evidence of the machine now.
func SeeMachine(ctx context.Context, h *Node, e *health.Evidence) error {
	seen, err := h.Reader.Facts(ctx, Query(h, e.Wanted.Config))
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
	is, err := h.Reader.UnitStatus(ctx, unit)
	if err != nil {
		return health.Service{}, fmt.Errorf("cannot check %s: %w", unit, err)
	}
	return health.Service{
		Active: is.Running(), PID: is.MainPID, Restarts: is.Restarts, Since: is.Since,
	}, nil
}

// WithLogs adds the services' last log lines, which are read only if something is wrong.
func WithLogs(ctx context.Context, h *Node, e *health.Evidence) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	e.Containerd.Value.Log = h.Reader.Journal(ctx, node.ContainerdUnit, 50)
	e.Kubelet.Value.Log = h.Reader.Journal(ctx, node.KubeletUnit, 50)
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
	if NodeEvidence(ctx, client, e) {
		e.Pods = health.Answered(client.PodsOn(ctx, e.Wanted.Agent.NodeName))
		ServicesEvidence(ctx, h, client, e)
	}
}

// ServicesEvidence adds whether Services can be reached, if there is a Node.
func ServicesEvidence(ctx context.Context, h *Node, client *kube.Client, e *health.Evidence) {
	if e.Node.OK() {
		e.Services = health.Answered(client.TryServices(ctx, e.Wanted.Node.Kubelet.DNSServiceIP, h.Dial))
	}
}

// NodeEvidence gathers answers except the pods, and reports whether the API server answers.
func NodeEvidence(ctx context.Context, client *kube.Client, e *health.Evidence) bool {
	name := e.Wanted.Agent.NodeName
	e.Node = health.Answered(client.Node(ctx, name))
	if e.Node.Err != nil && !kube.NodeMissing(e.Node.Err) && !kube.Answered(e.Node.Err) {
		return false
	}
	atOnce(ctx,
		func(ctx context.Context) { e.Credential = health.Answered(client.WhoAmI(ctx)) },
		func(ctx context.Context) { e.Lease = health.Answered(client.Lease(ctx, name)) },
		func(ctx context.Context) { e.ServerVersion = health.Answered(client.ServerVersion(ctx)) },
	)
	return true
}

// ProbeEvidence probes each layer on the way to the API server, with the available credential.
func ProbeEvidence(ctx context.Context, h *Node, at Cluster, e *health.Evidence) {
	c := e.Wanted.Config
	target := kube.Target{Server: at.Server, CA: []byte(at.CA), Options: h.Options(c)}
	target.Entra = c.Azure.BootstrapToken == nil
	// Kubelet with a certificate no longer needs its join credential. An Arc identity may not exist
	// before the machine is connected.
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

// EvidenceOf returns all evidence of a node but its drift; known is the state of the running
// service. It makes the requests concurrently, each with a bound.
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

// atOnce calls several functions concurrently, and waits until each has ended or is out of time.
func atOnce(ctx context.Context, questions ...func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, ask := range questions {
		all.Go(func() { ask(ctx) })
	}
	all.Wait()
}

// withMachine adds evidence of the machine. Without it conditions are Unknown.
func withMachine(ctx context.Context, h *Node, e *health.Evidence) error {
	seen, err := h.Reader.Facts(ctx, Query(h, e.Wanted.Config))
	if err != nil {
		return err
	}
	Upkeep(ctx, h, h.Saved.At(), seen, e)
	return MachineEvidence(ctx, h, seen, e)
}

// refusal returns why the wanted configuration is not in force; nil if it is.
func refusal(h *Node, known *Work) *health.Rejection {
	for _, r := range slices.Backward(h.Saved.Rejected) {
		// The applied document is accepted, even if it failed for other facts of the machine.
		if !r.Past && (h.Saved.Applied == nil || r.Received != h.Saved.Applied.Received) {
			return &health.Rejection{Version: r.Generation[:12], Reason: r.Reason, At: r.At}
		}
	}
	return cmp.Or(known, &Work{}).Refused
}

// withRuntime adds whether containerd runs and serves kubelet. It asks again if there is no answer.
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
		err := ask(ctx)
		e.Runtime = health.Tried(err)
		if err == nil || errors.Is(err, kube.ErrNoRuntimeService) || errors.Is(err, fs.ErrPermission) {
			h.unanswered = 0
			return
		}
		h.unanswered++
		if e.Unanswered = h.unanswered; h.InService || h.unanswered > 1 {
			return
		}
		if !errors.Is(err, kube.ErrRuntimeSilent) { // it may be starting
			select {
			case <-ctx.Done():
				return
			case <-time.After(h.Every(time.Second)):
			}
		}
	}
}

// runtimeLost describes why a running container runtime does not serve kubelet; "" if it does.
func runtimeLost(e health.Evidence) string {
	switch {
	case e.Hangs():
		return "not answering"
	case errors.Is(e.Runtime.Err, kube.ErrNoRuntimeService):
		return "running without it"
	}
	return ""
}

// RuntimeLost reports whether the container runtime runs but does not serve kubelet.
func RuntimeLost(ctx context.Context, h *Node) bool {
	var e health.Evidence
	withRuntime(ctx, h, &e)
	return runtimeLost(e) != ""
}
