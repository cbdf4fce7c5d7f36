package agent

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/node"
)

// Given is the machine's configuration as it is now.
type Given struct {
	// Input is nil when it cannot be used, and Err says why. Both are nil on a machine without one.
	Input *Input
	Err   error
	// Unprivileged tells that somebody other than root asks.
	Unprivileged bool
}

// Doctor finds out what is wrong with this machine and the way to its cluster: before, during and
// after a join. It changes nothing, and goes as far as it can: what cannot be found out is unknown.
func (a *Agent) Doctor(
	ctx context.Context, given Given, wanted func(name string) bool,
) []health.Diagnosis {
	d := a.patient(ctx, given)
	d.took = make(map[string]time.Duration)
	d.examined(ctx)
	if slices.ContainsFunc(ofEndpoints(), wanted) {
		began := time.Now()
		d.evidence.Examined.Endpoints = d.endpointEvidence(ctx)
		d.took["endpoints"] = time.Since(began)
	}
	d.gather(ctx, wanted(health.HostAsConfigured))
	list := health.Examine(d.evidence, wanted)
	if slices.ContainsFunc(list, func(x health.Diagnosis) bool { return x.Explained() }) {
		d.withLogs(ctx, &d.evidence)
		list = health.Examine(d.evidence, wanted)
	}
	for i := range list {
		list[i].Seconds = d.took[gathered(list[i].Type)].Seconds()
	}
	return list
}

// ofEndpoints are the conditions for which servers are tried.
func ofEndpoints() []string {
	return []string{health.NamesResolved, health.PathMTU, health.EndpointsReachable,
		health.EndpointsTrusted, health.ClockAccurate}
}

// gathered is where the evidence of a condition comes from.
func gathered(name string) string {
	switch {
	case slices.Contains(ofEndpoints(), name):
		return "endpoints"
	case health.OfDoctor(name):
		return "machine"
	case name == health.HostAsConfigured:
		return "drift"
	}
	return "node"
}

// patient is a machine that is examined: what is remembered of it, and the configuration that
// counts.
type patient struct {
	*home
	given Given
	// config is that of the node, else the one that was given, else only defaults.
	config config.Config
	// at is where its API server is, as far as that is known.
	at       where
	seen     host.Facts
	evidence health.Evidence
	took     map[string]time.Duration
}

// patient opens the machine's memory as far as it can be read.
func (a *Agent) patient(ctx context.Context, given Given) *patient {
	p := &patient{given: given}
	x := &health.Examined{Unprivileged: given.Unprivileged}
	var err error
	if !given.Unprivileged {
		p.home, err = a.openReadOnly(ctx)
		x.State = health.Tried(err)
	}
	if p.home == nil || err != nil {
		p.home = a.newHome(apply.NewJournal(a.Machine, saved.StateDir, saved.LedgerFile), nil)
	}
	switch {
	case p.saved.Live != nil:
		g := p.saved.Live
		if p.saved.Applied != nil {
			g = p.saved.Applied
		}
		p.config, p.at = p.saved.ConfigOf(g), p.home.saved.At()
	case given.Input != nil:
		p.config = given.Input.Config
		l := &locator{home: p.home}
		if located(p.config) {
			p.at, _ = l.locate(ctx, p.config) // it only reads the configuration
		}
	default:
		defaults, _ := config.Read([]byte("{}"), nil) // there is no cluster in it
		p.config = defaults.Config
	}
	if given.Input != nil || given.Err != nil {
		x.Configuration = health.Tried(given.Err)
	}
	p.evidence = health.Evidence{Now: now(), Wanted: p.wanted(p.config), Examined: x}
	return p
}

// examined adds what only doctor asks the machine.
func (p *patient) examined(ctx context.Context) {
	began := time.Now()
	defer func() { p.took["machine"] = time.Since(began) }()
	x := p.evidence.Examined
	var err error
	query := p.query(p.config)
	query.Firewalls = query.Firewalls && !p.given.Unprivileged
	if p.seen, err = p.Machine.Facts(ctx, query); err != nil {
		p.Log.Debug("cannot examine the machine", "error", err)
		return
	}
	m := p.Machine.Examine(node.Modules(), saved.StateDir, p.seen.ResolvConf)
	x.MissingModules, x.MissingControllers, x.MissingCPU =
		m.MissingModules, m.MissingControllers, m.MissingCPU
	x.CgroupVersion, x.Routed, x.Resolvers, x.Sync = m.CgroupVersion, m.Routed, m.Resolvers, m.Sync
	x.Unfinished, x.Held, x.Upgradable = m.Unfinished, m.Held, m.Upgradable
	x.CgroupV1Allowed = p.allowsCgroupV1()
	if is, err := p.Machine.UnitStatus(ctx, node.KubeletUnit); err == nil && !is.Running() {
		for _, port := range node.KubeletPorts() {
			if slices.Contains(m.Listening, port) {
				x.Taken = append(x.Taken, port)
			}
		}
	}
	if p.saved.Live == nil {
		p.evidence.Upkeep = p.upkeep(ctx, p.config, p.at, p.seen)
	}
}

// allowsCgroupV1 tells whether the owner has had kubelet accept control groups of version 1.
func (p *patient) allowsCgroupV1() bool {
	dir := path.Join(p.config.Paths.Kubernetes.ConfigDir, "kubelet.conf.d")
	names, _ := p.Machine.List(dir) // there may be none
	return slices.ContainsFunc(names, func(name string) bool {
		text, err := p.Machine.ReadFile(path.Join(dir, name))
		return err == nil && strings.Contains(string(text), "failCgroupV1: false")
	})
}

// gather adds the evidence that status and preflight judge by.
func (p *patient) gather(ctx context.Context, drift bool) {
	began := time.Now()
	defer func() { p.took["node"] += time.Since(began) }()
	x := p.evidence.Examined
	if p.saved.Live == nil {
		p.prospect(ctx)
		return
	}
	g := p.saved.Live
	if p.saved.Applied != nil {
		g = p.saved.Applied
	}
	p.evidence = p.evidenceOf(ctx, g)
	p.evidence.Examined = x
	if !p.evidence.Probe.Asked && p.evidence.Node.Err != nil {
		p.probeEvidence(ctx, p.config, p.at, &p.evidence)
	}
	told := known(p.working(ctx))
	if u := p.evidence.Upkeep; u != nil {
		u.Polls = told.polls
	}
	if !drift {
		return
	}
	compare := time.Now()
	plan, unseen := p.machineDrift(ctx)
	plan = p.withDrift(ctx, &p.evidence, plan, unseen)
	p.withKnown(&p.evidence, entries(plan), told)
	p.took["drift"] = time.Since(compare)
	p.took["node"] -= p.took["drift"]
}

// prospect gathers the evidence of preflight, on a machine that is no node.
func (p *patient) prospect(ctx context.Context) {
	e, c := &p.evidence, p.config
	e.Trust, e.Waiting = health.Tried(p.trusted()), p.waitingEvidence()
	e.Machine, _ = p.machineEvidence(ctx, c, p.seen) // without it, conditions are Unknown
	installed := func(u host.InstalledUnit) bool { return u.Name == node.KubeletUnit }
	if p.given.Unprivileged && slices.ContainsFunc(p.seen.Units, installed) {
		p.serviceEvidence(ctx, e)
	}
	if p.saved.Transition != nil {
		e.Transition = &health.Transition{
			Kind: string(p.saved.Transition.Kind), Phase: string(p.saved.Transition.Phase),
		}
	}
	if p.given.Input == nil {
		return
	}
	t, err := p.aim(ctx, *p.given.Input)
	if err == nil {
		err = p.identifiable(ctx, t)
	}
	if err == nil {
		t.at, err = t.locator.locate(ctx, c)
	}
	if err != nil {
		e.Probe = health.Tried(err)
		return
	}
	p.probeEvidence(ctx, c, t.at, e)
	if e.Probe.OK() {
		e.Credential = health.Answered("", nil)
		if err := p.allowed(ctx, c, t.at); err != nil {
			e.Probe, e.Credential = health.Tried(err), health.Answer[string]{}
		}
	}
	if server, err := p.serverVersion(ctx, t); err == nil {
		e.ServerVersion = health.Answered(server, nil)
	}
}
