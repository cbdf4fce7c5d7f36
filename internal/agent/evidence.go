package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/release"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// defaultSettling is how long kubelet must have been one process before a change is committed. A
// kubelet that ends itself does so within a second or two of its start.
const defaultSettling = 5 * time.Second

// clusterTimeout bounds each gathering of what the cluster says.
const clusterTimeout = 10 * time.Second

// wanted is what a configuration says about the node.
func (a *Agent) wanted(c config.Config) health.Wanted {
	settling := a.Settling
	if settling == 0 {
		settling = defaultSettling
	}
	var unmasked []string
	if c.CNI.PodCIDR == "" {
		unmasked = c.CNI.NonMasqueradeCIDRs
	}
	return health.Wanted{
		Node: c.Agent.NodeName, Kubernetes: c.Kubernetes.Version, Containerd: c.Containerd.Version,
		MaxPods: c.Node.MaxPods, NodeIP: c.Node.Kubelet.NodeIP, Unmasked: unmasked,
		Allocated: c.CNI.PodCIDR == "", DNS: c.Node.Kubelet.DNSServiceIP,
		Reserved: c.Node.Kubelet.KubeReserved, Eviction: c.Node.Kubelet.EvictionHard,
		Labels: c.Node.Labels, Taints: c.Node.Taints,
		FirewallIgnored: c.Network.Firewall == config.FirewallIgnore,
		FirewallManaged: c.Network.Firewall == config.FirewallManage,
		MetadataAllowed: c.Network.Metadata == config.MetadataAllow,
		ServingIssued:   c.Node.Kubelet.ServerTLSBootstrap,
		Arc:             c.Azure.AuthMode() == config.AuthArc, ArcRole: arcRole(c),
		Entra: c.Azure.ShowsToken(), Follows: c.ContinuousMonitoring, Located: located(c),
		Settling: settling,
	}
}

// machineEvidence is what was found on the machine. What is ours does not count as foreign.
func (h *home) machineEvidence(
	ctx context.Context, c config.Config, seen host.Facts,
) (*health.Machine, error) {
	m := &health.Machine{
		UID: seen.UID, Arch: seen.Arch, OSID: seen.OSID, OSVersion: seen.OSVersion, OSName: seen.OSName,
		MachineID: seen.MachineID, SystemUUID: seen.SystemUUID,
		Systemd: seen.Systemd, IPTables: seen.IPTables, NFTables: seen.NFTables,
		Installed: h.engine.Journal.Exists(),
		Free:      seen.Free, Addresses: seen.Addresses,
		CPUMillis: int64(seen.CPUs), MemoryBytes: seen.MemoryBytes, DiskBytes: seen.DiskBytes,
		CNIConfigs: seen.CNIConfigs, NoIPv6: seen.NoIPv6,
		Firewalls: h.firewallEvidence(ctx, c, seen),
	}
	own := len(foreignNetworks(seen.CNIConfigs)) == 0
	if own && (c.CNI.PodCIDR != "" || h.saved.Joined()) {
		m.PodCIDRs = h.subnets(c)
	}
	for _, unit := range seen.Units {
		m.ForeignUnits = append(m.ForeignUnits, health.ForeignUnit{Name: unit.Name, Path: unit.Path})
	}
	ledger := h.engine.Journal.Ledger()
	for _, dir := range []string{c.Paths.Kubernetes.KubeletDir, "/var/lib/containerd"} {
		key := state.PathKey(dir)
		if _, ours := ledger.Entry(key); ours {
			continue
		}
		is, err := h.Machine.Observe(ctx, key)
		if err != nil {
			return nil, err
		}
		if filled(is) {
			m.ForeignDirectories = append(m.ForeignDirectories, dir)
		}
	}
	return m, nil
}

// filled tells whether somebody has put something into a directory.
func filled(r state.Resource) bool {
	switch r := r.(type) {
	case state.Dir:
		return !r.Empty
	case state.Link:
		return r.Dir != nil && !r.Dir.Empty
	}
	return false
}

// serviceEvidence is how containerd and kubelet run.
func (h *home) serviceEvidence(ctx context.Context, e *health.Evidence) {
	e.Containerd = health.Answered(h.service(ctx, node.ContainerdUnit))
	e.Kubelet = health.Answered(h.service(ctx, node.KubeletUnit))
	healthz := h.Healthz
	if healthz == nil {
		healthz = localHealthz
	}
	e.Healthz = health.Tried(healthz(ctx))
	h.runtimeEvidence(ctx, e)
}

// localHealthz asks kubelet's health endpoint on this machine.
func localHealthz(ctx context.Context) error {
	once := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Timeout: 5 * time.Second, Transport: once}
	return kube.Healthz(ctx, client, kube.KubeletHealthz)
}

func (h *home) service(ctx context.Context, unit string) (health.Service, error) {
	is, err := h.Machine.UnitStatus(ctx, unit)
	if err != nil {
		return health.Service{}, fmt.Errorf("cannot check %s: %w", unit, err)
	}
	s := health.Service{Active: is.Running(), PID: is.MainPID, Restarts: is.Restarts, Since: is.Since}
	return s, nil
}

// withLogs adds the services' last log lines, which are read only when something is wrong.
func (h *home) withLogs(ctx context.Context, e *health.Evidence) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	e.Containerd.Value.Log = h.Machine.Journal(ctx, node.ContainerdUnit, 50)
	e.Kubelet.Value.Log = h.Machine.Journal(ctx, node.KubeletUnit, 50)
}

// clusterEvidence is what the cluster says of the node, as far as it answers.
func (h *home) clusterEvidence(ctx context.Context, c config.Config, at where, e *health.Evidence) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	client, err := h.kubeletClient(ctx, c, at)
	if err != nil {
		e.Probe = health.Tried(err)
		return
	}
	defer client.Close()
	if h.nodeEvidence(ctx, client, c, at, e) {
		e.Pods = health.Answered(client.PodsOn(ctx, c.Agent.NodeName))
	}
}

// versionStands is how long the version of an API server stands that works with kubelet's.
const versionStands = time.Hour

// serverVersion is the version of an API server, as it said it then.
type serverVersion struct {
	server, kubelet, version string
	at                       time.Time
}

// versionEvidence asks for the API server's version, once in a while if it works with kubelet's.
func (h *home) versionEvidence(
	ctx context.Context, client *kube.Client, server, kubelet string,
) health.Answer[string] {
	last := h.version
	known := last.server == server && last.kubelet == kubelet
	if known && time.Since(last.at) < versionStands {
		return health.Answered(last.version, nil)
	}
	is := health.Answered(client.ServerVersion(ctx))
	if is.OK() && release.SkewOf(kubelet, is.Value) == release.Works {
		h.version = serverVersion{server, kubelet, is.Value, time.Now()}
	}
	return is
}

// nodeEvidence asks an API server for all that concerns the node, but for its pods. It reports
// whether the API server answers: one that does not is asked only once.
func (h *home) nodeEvidence(
	ctx context.Context, client *kube.Client, c config.Config, at where, e *health.Evidence,
) bool {
	name := c.Agent.NodeName
	e.Node = health.Answered(client.Node(ctx, name))
	if e.Node.Err != nil && !kube.NodeMissing(e.Node.Err) && !kube.Answered(e.Node.Err) {
		return false
	}
	atOnce(ctx,
		func(ctx context.Context) { e.Credential = health.Answered(client.WhoAmI(ctx)) },
		func(ctx context.Context) { e.Lease = health.Answered(client.Lease(ctx, name)) },
		func(ctx context.Context) {
			e.ServerVersion = h.versionEvidence(ctx, client, at.Server, c.Kubernetes.Version)
		},
	)
	return true
}

// probeEvidence goes the way to the API server layer by layer, with the credential that there is.
func (h *home) probeEvidence(ctx context.Context, c config.Config, at where, e *health.Evidence) {
	target := kube.Target{Server: at.Server, CA: []byte(at.CA), Options: h.options(c)}
	target.Entra = c.Azure.BootstrapToken == nil
	// With its certificate kubelet no longer needs what it joined with. An Arc identity may not
	// exist before the machine is connected.
	arc := c.Azure.AuthMode() == config.AuthArc && !h.enrolledBefore()
	if !arc && (c.Azure.ShowsToken() || !h.credentialed(c)) {
		token, err := h.shownToken(ctx, c)
		if err != nil {
			e.Probe = health.Tried(err)
			return
		}
		target.Token = token
	}
	e.Probe = health.Tried(kube.Probe(ctx, target))
}

// explain says why a node is not healthy: which layer is broken, who can mend it, and how.
func (w *work) explain(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return cause
	}
	c := w.config
	at := w.target()
	e := health.Evidence{Now: now(), Wanted: w.wanted(c)}
	w.serviceEvidence(ctx, &e)
	w.withLogs(ctx, &e)
	if seen, err := w.Machine.Facts(ctx, w.query(c)); err == nil {
		if e.Machine, err = w.machineEvidence(ctx, c, seen); err != nil {
			return errors.Join(cause, err)
		}
	}
	w.probeEvidence(ctx, c, at, &e)
	if err := e.Probe.Err; err == nil {
		if err = w.allowed(ctx, c, at); err != nil {
			e.Probe = health.Tried(err)
		}
	}
	if e.Probe.Err == nil {
		asking, cancel := context.WithTimeout(ctx, 2*clusterTimeout)
		defer cancel()
		if client, err := w.joinClient(asking, c, at); err == nil {
			defer client.Close()
			if w.nodeEvidence(asking, client, c, at, &e) {
				e.Pods = health.Answered(client.PodsOn(asking, c.Agent.NodeName))
			}
			e.CSRs = health.Answered(client.CSRs(asking, c.Agent.NodeName))
			if w.keepsKubelet() {
				e.ServerVersion = health.Answer[string]{}
			}
		}
	}
	conditions := slices.DeleteFunc(health.Evaluate(health.Watch(), e), health.Condition.NotChecked)
	worst, found := health.First(conditions)
	if !found {
		return fmt.Errorf("cannot make Node %s Ready within %s: %w; check `journalctl -u kubelet`, and "+
			"try again with a larger agent.readyTimeout", c.Agent.NodeName, c.ReadyTimeout(), cause)
	}
	return &UnhealthyError{Node: c.Agent.NodeName, Within: c.ReadyTimeout(), Condition: worst}
}

// UnhealthyError tells that a node did not become healthy in time, and the condition that decides.
type UnhealthyError struct {
	Node      string
	Within    time.Duration
	Condition health.Condition
}

func (e *UnhealthyError) Error() string {
	return fmt.Sprintf("cannot make Node %s Ready within %s: %s: %s",
		e.Node, e.Within, e.Condition.Type, e.Condition.Message)
}

// failedUnitLog are the last lines of the unit that made a change fail.
func (h *home) failedUnitLog(ctx context.Context, cause error) []string {
	unit := node.KubeletUnit
	if failed, ok := errors.AsType[*UnhealthyError](cause); ok &&
		failed.Condition.Type == health.ContainerdRunning {
		unit = node.ContainerdUnit
	}
	return h.Machine.Journal(ctx, unit, 10)
}

// evidenceOf is all that is known of a node, but for its drift. All questions are asked at once,
// each with a bound, so that one without an answer keeps no other from being asked.
func (h *home) evidenceOf(ctx context.Context, g *generation.Generation) health.Evidence {
	c, at := h.saved.ConfigOf(g), h.saved.At()
	e := health.Evidence{Now: now(), Wanted: h.wanted(c), Trust: health.Tried(h.trusted())}
	h.withServing(c, &e)
	if t := h.saved.Transition; t != nil {
		e.Transition = &health.Transition{Kind: string(t.Kind), Phase: string(t.Phase)}
	}
	e.Damaged, e.Waiting = h.storeEvidence(), h.waitingEvidence()
	var unseen error
	atOnce(ctx,
		func(ctx context.Context) { unseen = h.withMachine(ctx, c, &e) },
		func(ctx context.Context) { e.Metadata = h.metadataEvidence(ctx, c) },
		func(ctx context.Context) { h.serviceEvidence(ctx, &e) },
		func(ctx context.Context) { e.Detector = health.Answered(h.service(ctx, node.NPDUnit)) },
		func(ctx context.Context) { h.clusterEvidence(ctx, c, at, &e) },
		func(ctx context.Context) { e.Arc = h.arcEvidence(ctx, c) },
	)
	e.Observed = health.Tried(
		errors.Join(unseen, e.Containerd.Err, e.Kubelet.Err, e.Detector.Err))
	atOnce(ctx,
		func(ctx context.Context) { h.withServices(ctx, c, at, &e) },
		func(ctx context.Context) { e.Authorised = h.roleEvidence(ctx, c, at, e.Node) },
		func(ctx context.Context) {
			if e.Node.Err != nil && !kube.NodeMissing(e.Node.Err) {
				h.probeEvidence(ctx, c, at, &e)
			}
		},
	)
	return e
}

// answerTimeout bounds each of the questions that are asked at once.
const answerTimeout = 10 * time.Second

// atOnce asks several questions at once, and returns when each is answered or out of time.
func atOnce(ctx context.Context, questions ...func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, ask := range questions {
		all.Go(func() { ask(ctx) })
	}
	all.Wait()
}

// withMachine adds what is found on the machine. Without it conditions are Unknown.
func (h *home) withMachine(ctx context.Context, c config.Config, e *health.Evidence) error {
	seen, err := h.Machine.Facts(ctx, h.query(c))
	if err != nil {
		return err
	}
	e.Upkeep = h.upkeep(ctx, c, h.saved.At(), seen)
	e.Machine, err = h.machineEvidence(ctx, c, seen)
	return err
}

// withKnown adds what only the daemon knows.
func (h *home) withKnown(e *health.Evidence, drift []Entry, known watching) {
	e.BudgetExhausted = slices.ContainsFunc(drift, func(d Entry) bool {
		return slices.Contains(known.exhausted, string(d.Key))
	})
	e.Rejected = h.refusal(known)
	if e.Upkeep != nil {
		e.Upkeep.Polls = known.polls
	}
}

// judge returns all conditions of a node.
func (h *home) judge(ctx context.Context, e health.Evidence) []health.Condition {
	conditions := health.Evaluate(health.Watch(), e)
	// Reading the journal runs a program.
	if slices.ContainsFunc(conditions, health.Condition.Explained) {
		h.withLogs(ctx, &e)
		conditions = health.Evaluate(health.Watch(), e)
	}
	return conditions
}

// refusal is why the configuration that is wanted is not in force; nil when it is.
func (h *home) refusal(known watching) *health.Rejection {
	for _, r := range slices.Backward(h.saved.Rejected) {
		// The applied document is accepted, also where it failed for other facts of the machine.
		if !r.Past && (h.saved.Applied == nil || r.Received != h.saved.Applied.Received) {
			return &health.Rejection{Version: r.Generation[:12], Reason: r.Reason, At: r.At}
		}
	}
	return known.refused
}
