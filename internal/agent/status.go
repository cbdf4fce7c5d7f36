package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Status is how the node is: what it was made as, whether it runs, and what has drifted.
type Status struct {
	NodeName   string    `json:"nodeName"`
	Server     string    `json:"server"`
	Identity   string    `json:"identity"`             // how kubelet proves who it is: a config.AuthMode
	ArcMachine string    `json:"arcMachine,omitempty"` // the ARM id of the Arc machine
	Joined     bool      `json:"joined"`
	Ready      string    `json:"ready"` // True, False, Unknown; "" when the cluster did not answer
	Reason     string    `json:"reason,omitempty"`
	Kubernetes string    `json:"kubernetes"`
	Containerd string    `json:"containerd"`
	Runc       string    `json:"runc"`
	PodCIDR    string    `json:"podCIDR,omitempty"`
	Units      []Running `json:"units"`
	Drift      []Entry   `json:"drift"`
	CheckedAt  time.Time `json:"checkedAt"`
}

// Running is a service of the node.
type Running struct {
	Name   string `json:"name"`
	Active bool   `json:"active"`
}

// Healthy tells whether nothing needs a look.
func (s Status) Healthy() bool {
	for _, u := range s.Units {
		if !u.Active {
			return false
		}
	}
	return s.Ready == "True" && len(s.Drift) == 0
}

// StatusFile is where the daemon keeps the status it saw last.
const StatusFile = RunDir + "/status.json"

// Status looks at the node now. It changes nothing.
func (a *Agent) Status(ctx context.Context) (Status, error) {
	s, err := a.look()
	if err != nil {
		return Status{}, err
	}
	return s.status(ctx)
}

func (s *session) status(ctx context.Context) (Status, error) {
	plan, g, err := s.drift(ctx)
	if err != nil {
		return Status{}, err
	}
	st := Status{
		NodeName:   g.config.Agent.NodeName,
		Server:     g.facts.Server,
		Identity:   string(g.config.Azure.AuthMode()),
		Joined:     g.facts.Joined,
		Kubernetes: g.config.Kubernetes.Version,
		Containerd: g.config.Containerd.Version,
		Runc:       g.config.Runc.Version,
		PodCIDR:    g.facts.PodCIDR,
		Drift:      entries(plan),
		CheckedAt:  s.now().UTC().Truncate(time.Second),
	}
	for _, unit := range []string{"containerd.service", "kubelet.service", "node-problem-detector.service"} {
		is, err := s.Machine.Observe(ctx, state.UnitKey(unit))
		if err != nil {
			return Status{}, err
		}
		st.Units = append(st.Units, Running{Name: unit, Active: is.(state.Unit).Active})
	}
	var enrolled arc.Record
	if _, err := s.records.load(arcFile, &enrolled); err != nil {
		return Status{}, err
	}
	st.ArcMachine = enrolled.MachineID
	st.Ready, st.Reason = s.readiness(ctx, g.config)
	return st, nil
}

// readiness asks the cluster how it sees the Node. That it cannot be asked is an answer too.
func (s *session) readiness(ctx context.Context, c config.Config) (ready, reason string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cluster, err := s.kubelet(c)
	if err != nil {
		return "", err.Error()
	}
	defer cluster.Close()
	n, err := cluster.Node(ctx, c.Agent.NodeName)
	if err != nil {
		return "", err.Error()
	}
	condition := kube.Ready(n)
	if condition.Status == "True" {
		return "True", ""
	}
	return string(condition.Status), condition.Message
}

// WriteText writes the status for people.
func (s Status) WriteText(w io.Writer) {
	ready := "Ready"
	if s.Ready != "True" {
		ready = "NOT Ready: " + s.Reason
	}
	fmt.Fprintf(w, "Node        %s, %s\n", s.NodeName, ready)
	fmt.Fprintf(w, "Cluster     %s\n", s.Server)
	fmt.Fprintf(w, "Identity    %s\n", s.Identity)
	if s.ArcMachine != "" {
		fmt.Fprintf(w, "Arc         %s\n", s.ArcMachine)
	}
	fmt.Fprintf(w, "Versions    kubernetes %s, containerd %s, runc %s\n", s.Kubernetes, s.Containerd, s.Runc)
	if s.PodCIDR != "" {
		fmt.Fprintf(w, "Pods        %s\n", s.PodCIDR)
	}
	for _, u := range s.Units {
		state := "running"
		if !u.Active {
			state = "STOPPED"
		}
		fmt.Fprintf(w, "Service     %s %s\n", u.Name, state)
	}
	if len(s.Drift) == 0 {
		fmt.Fprintln(w, "Drift       none")
	}
	for _, d := range s.Drift {
		fmt.Fprintf(w, "Drift       %s: expected %s, found %s\n", d.Key, d.Expected, d.Found)
	}
}

// WriteJSON writes the status as one JSON object.
func (s Status) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(s)
}
