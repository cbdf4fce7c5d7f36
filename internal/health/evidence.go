package health

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/distro"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Answer holds the result of one query: zero if it was not made, else a value or an error.
type Answer[T any] struct {
	Asked bool
	Value T
	Err   error
}

// Answered converts the results of a query, as in Answered(client.Node(ctx, name)).
func Answered[T any](value T, err error) Answer[T] {
	return Answer[T]{Asked: true, Value: value, Err: err}
}

// Tried converts the result of a query without a value.
func Tried(err error) Answer[struct{}] { return Answered(struct{}{}, err) }

// OK reports whether the answer has a value.
func (a Answer[T]) OK() bool { return a.Asked && a.Err == nil }

func (a Answer[T]) missing() Condition {
	if !a.Asked {
		return notAsked()
	}
	return unknown(notAnswered, oneLine(a.Err))
}

// Evidence holds the input of conditions. Zero fields were not gathered, and make them Unknown.
type Evidence struct {
	Now      time.Time
	Today    string // such as 2026-11-26, for judging the end of support; "" disables that
	Paused   string // the PauseText of a paused machine, else ""
	Wanted   Wanted
	Machine  *Machine         // nil if it was not examined
	Observed Answer[struct{}] // the error lists what could not be observed
	Trust    Answer[struct{}] // an error if the program or its configuration cannot be trusted

	// Detector is the node-problem-detector.
	Containerd, Kubelet, Detector Answer[Service]

	Runtime    Answer[struct{}] // of kube.Runtime, requested while containerd runs
	Unanswered int              // consecutive requests to the container runtime
	Healthz    Answer[struct{}] // the answer of kubelet's healthz endpoint

	// Probe is the answer of kube.Probe; an error other than *kube.Fault means there is no credential.
	Probe         Answer[struct{}]
	Credential    Answer[string] // of kube.Client.WhoAmI
	ServerVersion Answer[string]
	CSRs          Answer[[]kube.CSR]
	Node          Answer[kube.Node]
	Lease         Answer[kube.Lease]
	Pods          Answer[[]corev1.Pod]
	Services      Answer[kube.Services]
	Serving       Answer[Validity] // of kubelet's serving certificate; zero if it has none

	Arc        Answer[Arc]  // the machine's registration with Azure Arc
	Authorised Answer[bool] // whether the cluster authorises that identity, if kubelet uses it

	Upkeep   *Upkeep   // parts of a machine that wear out or change, nil if not gathered
	Examined *Examined // for Examine only, nil if not gathered

	Metadata Answer[Metadata] // the result of a pod's connection to the metadata service

	Damaged         Answer[[]string] // the artifacts whose files differ from the verified ones
	Drift           Answer[int]      // the number of differences from the applied configuration
	BudgetExhausted bool
	Rejected        *Rejection             // the wanted configuration, if it has failed
	Transition      *transition.Transition // the change under way
	Waiting         *Waiting               // why the wanted change waits; nil if none does
}

// Wanted is the configuration of the node.
type Wanted struct {
	config.Config
	ArcRole  string        // the role that the identity of an Arc machine needs in the cluster
	Settling time.Duration // how long kubelet must have run as one process
}

// Machine holds the findings on the machine. Units are foreign runtimes and kubelets.
type Machine struct {
	host.Facts
	Installed          bool               // the node's files are on the machine
	ForeignDirectories []string           // directories with the state of a foreign node
	Barriers           Answer[[]Firewall] // the owner's firewalls; not queried if they are ignored
	Tunnel             bool               // an agent of the cluster's tunnel runs on the node
	Server             string             // the known URL of the API server
	PodCIDRs           []string           // the known subnets of the node's own pod network
	EngineNetwork      string             // the file of pods' network, if it is a container engine's
}

func (e Evidence) distro() distro.Distro {
	d, _ := distro.Find(cmp.Or(e.Machine, &Machine{}).OSID)
	return d
}

// Firewall is a firewall that stops a node's traffic, with the commands that open it.
type Firewall struct {
	Name             string
	Closed, Commands []string
}

// Service is a systemd service.
type Service struct {
	Active   bool
	PID      int
	Restarts int       // by systemd, since it was last started by hand (NRestarts)
	Since    time.Time // the start of its process
	Log      []string  // its last lines
}

// Rejection is a configuration that failed and was rolled back.
type Rejection struct {
	Version, Reason string
	At              time.Time
	ByPolicy        bool // refused by the policy of the machine, and not tried
	Untrusted       bool // offered by the provider, but not signed by the installation
}
