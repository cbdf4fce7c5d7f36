package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// The fleet follows the first cluster's rollout policy. Its agents are simulated; their Nodes are
// real objects in that cluster.
const (
	fleetSize   = 100
	fleetBudget = 2
	// fleetFaulty is the number of nodes of which a faulty version breaks one.
	fleetFaulty = 20
	// fleetTick is the mean time between an agent's polls, fleetBeat between the heartbeats of its
	// Node.
	fleetTick = time.Second
	fleetBeat = 15 * time.Second
)

// fleetPolicy returns the cluster's rollout policy.
func fleetPolicy() object {
	return object{"maxUnavailable": fmt.Sprint(fleetBudget), "canaries": 1, "maxFailed": 1,
		"soak": "PT10S", "deadline": "PT1M"}
}

// wave is a version that the fleet's owner sets for all nodes. Its setting is maxPods, which
// restarts kubelet.
type wave int

// breaks reports whether the version makes a node not Ready although its agent reports success.
// Versions in turn break every node, none, one in twenty, none. Nodes join with wave 0.
func (w wave) breaks(node int) bool {
	switch w % 4 {
	case 1:
		return true
	case 3:
		return node%fleetFaulty == int(w)%fleetFaulty
	}
	return false
}

// allowed returns how many nodes the version may break.
func (w wave) allowed() int {
	const canaries, maxFailed = 1, 1
	if w%4 == 1 {
		return canaries
	}
	return canaries + maxFailed + fleetBudget
}

const firstMaxPods = 100

func (w wave) maxPods() int { return firstMaxPods + int(w) }

// fleet holds a fleet's agents and counts their changes.
type fleet struct {
	agents []*fleetAgent
	admin  *http.Client
	who    Principal
	token  string

	mu sync.Mutex
	// away is the number of nodes in a change now, most its max.
	away, most int
	// changes counts completed changes, broken the nodes that each wave broke.
	changes int
	broken  map[wave]int
}

// leaves and returns count a node that begins and ends a change.
func (f *fleet) leaves() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away++
	f.most = max(f.most, f.away)
}

func (f *fleet) returns(w wave, broken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away--
	f.changes++
	if broken {
		f.broken[w]++
	}
}

// fleetAgent simulates a node's agent and kubelet.
type fleetAgent struct {
	*chaosRun
	number   int
	name, id string
	random   *rand.Rand

	uid, etag string
	// offered is the newest version offered by the provider, applied the node's current one, reported
	// the last one reported; wanted and runs are the waves of offered and applied.
	offered, applied, reported string
	wanted, runs               wave
	ready                      bool
	since, beat                time.Time
}

// joinFleet creates the fleet's nodes and joins them, before any fault.
func (c *chaosRun) joinFleet(ctx context.Context) error {
	who, err := c.lab.Azure()
	if err != nil {
		return err
	}
	c.fleet = &fleet{broken: map[wave]int{}, who: who.Node}
	if c.fleet.token, err = c.lab.TokenAt(ctx, who.Node, ProviderURL); err != nil {
		return err
	}
	if c.fleet.admin, err = c.lab.AdminClient(); err != nil {
		return err
	}
	c.fleet.admin.Timeout = opTimeout
	for i := range fleetSize {
		name := fmt.Sprintf("fleet-%d", i)
		c.fleet.agents = append(c.fleet.agents, &fleetAgent{chaosRun: c, number: i, name: name,
			id: ClusterID + "/flexNodeConfig/" + name, random: c.random(2000 + uint64(i))})
	}
	if a := c.ask(ctx, 0, http.MethodPut, ClusterID, object{"location": "lab",
		"properties": object{"kubeconfig": "flexlab", "dnsServiceIP": DNSService,
			"rolloutPolicy": fleetPolicy()}}, ""); a.status/100 != 2 {
		return fmt.Errorf("cannot set the rollout policy: %d %s", a.status, a.body)
	}
	for _, agent := range c.fleet.agents {
		if err := agent.join(ctx); err != nil {
			return fmt.Errorf("cannot join %s: %w", agent.name, err)
		}
	}
	return nil
}

// put sets a node's wave as its owner and returns the response.
func (f *fleetAgent) put(ctx context.Context, replica int, w wave) answer {
	who := f.fleet.who
	path := f.id + "?acceptOldCertificate=true"
	return f.ask(ctx, replica, http.MethodPut, path, object{"properties": object{
		"continuousMonitoring": true,
		"azureAuth": object{"method": "servicePrincipal", "servicePrincipal": object{
			"clientId": who.ClientID, "clientSecret": who.Secret, "clientTenant": Tenant}},
		"nodeConfig": object{"maxPods": w.maxPods()},
	}}, "")
}

func (f *fleetAgent) join(ctx context.Context) error {
	a := f.put(ctx, 0, 0)
	var shown struct{ Properties struct{ UID string } }
	if a.status == http.StatusOK {
		return errors.New("it exists from an earlier chaos run: stop this lab first, with flexlab down")
	}
	if err := json.Unmarshal(a.body, &shown); err != nil || a.status != http.StatusCreated {
		return fmt.Errorf("%d %s", a.status, a.body)
	}
	f.uid, f.ready, f.since = shown.Properties.UID, true, time.Now()
	node := object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": f.name}}
	if err := f.kubernetes(ctx, http.MethodPost, "/api/v1/nodes", node); err != nil {
		return err
	}
	f.heartbeat(ctx)
	f.poll(ctx)
	if f.offered == "" {
		return errors.New("the provider offers no configuration")
	}
	f.applied, f.runs = f.offered, f.wanted
	f.report(ctx)
	return nil
}

// run runs the agent until ctx ends.
func (f *fleetAgent) run(ctx context.Context) {
	patient := context.WithoutCancel(ctx)
	for rest(ctx, f.random, fleetTick/2, 3*fleetTick/2) {
		if time.Since(f.beat) > fleetBeat {
			f.heartbeat(patient)
		}
		f.poll(patient)
		if f.offered != f.applied && f.begin(patient) {
			f.change(patient)
		}
		if f.applied != f.reported {
			f.report(patient)
		}
	}
}

// poll fetches the configuration offered to the node.
func (f *fleetAgent) poll(ctx context.Context) {
	a := f.agentAsks(ctx, http.MethodGet, f.id, nil)
	var shown struct {
		Properties struct {
			ConfigVersion string
			NodeConfig    struct{ MaxPods int }
		}
	}
	if a.status != http.StatusOK || json.Unmarshal(a.body, &shown) != nil {
		return
	}
	f.etag, f.offered = a.etag, shown.Properties.ConfigVersion
	f.wanted = wave(shown.Properties.NodeConfig.MaxPods - firstMaxPods)
}

// begin asks the provider for leave to change, and reports whether it was granted.
func (f *fleetAgent) begin(ctx context.Context) bool {
	a := f.agentAsks(ctx, http.MethodPost, f.id+"/beginChange", object{"configVersion": f.offered})
	var granted struct{ GrantedSeconds int }
	return a.status == http.StatusOK && json.Unmarshal(a.body, &granted) == nil &&
		granted.GrantedSeconds > 0
}

// change applies the offered version.
func (f *fleetAgent) change(ctx context.Context) {
	f.fleet.leaves()
	time.Sleep(200*time.Millisecond + time.Duration(f.random.Int64N(int64(2*time.Second))))
	broken := f.wanted.breaks(f.number)
	if f.ready != !broken {
		f.ready, f.since = !broken, time.Now()
	}
	f.heartbeat(ctx)
	f.applied, f.runs = f.offered, f.wanted
	f.fleet.returns(f.runs, broken)
}

func (f *fleetAgent) report(ctx context.Context) {
	a := f.agentAsks(ctx, http.MethodPost, f.id+"/reportStatus",
		object{"config": object{"observed": f.offered, "applied": f.applied}})
	if a.status == http.StatusNoContent {
		f.reported = f.applied
	}
}

// agentAsks sends a request as the node.
func (f *fleetAgent) agentAsks(ctx context.Context, method, path string, body any) answer {
	header := map[string]string{"Authorization": "Bearer " + f.fleet.token, "X-Ms-Flexnode-Uid": f.uid}
	if method == http.MethodGet {
		header["If-None-Match"] = f.etag
	}
	return f.request(ctx, f.random.IntN(f.lab.Replicas), method, path, body, header)
}

// heartbeat writes the Node's status as its kubelet would.
func (f *fleetAgent) heartbeat(ctx context.Context) {
	status, now := "True", time.Now().UTC().Format(time.RFC3339)
	if !f.ready {
		status = "False"
	}
	err := f.kubernetes(ctx, http.MethodPatch, "/api/v1/nodes/"+f.name+"/status", object{
		"status": object{"conditions": []object{{"type": "Ready", "status": status,
			"reason": "Fleet", "message": "simulated", "lastHeartbeatTime": now,
			"lastTransitionTime": f.since.UTC().Format(time.RFC3339)}}}})
	if err == nil {
		f.beat = time.Now()
	}
}

// kubernetes sends an object to the first cluster's API server.
func (f *fleetAgent) kubernetes(ctx context.Context, method, path string, body object) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, method, APIServer+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	response, err := f.fleet.admin.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 && response.StatusCode != http.StatusConflict {
		err = fmt.Errorf("the API server answers %s: %.300s", response.Status, text)
	}
	return err
}

// updates sets one wave after another for all nodes, as the fleet's owner.
func (c *chaosRun) updates(ctx context.Context) error {
	r := c.random(1006)
	pause := min(max(c.For/4, 30*time.Second), 80*time.Second)
	for w := wave(1); ctx.Err() == nil; w++ {
		for _, agent := range c.fleet.agents {
			c.eventually(ctx, r, func(replica int) bool {
				return agent.put(ctx, replica, w).status/100 == 2
			})
		}
		if !rest(ctx, r, pause, 3*pause/2) {
			return nil
		}
	}
	return nil
}

// judgeFleet records violations of the rollout policy.
func (c *chaosRun) judgeFleet(result *ChaosResult) {
	f := c.fleet
	result.Updated, result.Away = f.changes, f.most
	if f.changes == 0 && c.For >= 3*time.Minute { // in a minute of faults a canary may not finish
		c.blame("no node of the fleet was updated, so the rollout policy was not tested")
	}
	if f.most > fleetBudget {
		c.blame("%d nodes of the fleet were away at once, the budget is %d", f.most, fleetBudget)
	}
	for w, broken := range f.broken {
		result.Broken = max(result.Broken, broken)
		if broken > w.allowed() {
			c.blame("wave %d has broken %d nodes, the max is %d", w, broken, w.allowed())
		}
	}
}
