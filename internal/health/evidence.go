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

// Answer holds the result of one question: zero when it was not asked, else a value or an error.
type Answer[T any] struct {
	Asked bool
	Value T
	Err   error
}

// Answered is the answer of a function that was asked: Answered(client.Node(ctx, name)).
func Answered[T any](value T, err error) Answer[T] {
	return Answer[T]{Asked: true, Value: value, Err: err}
}

// Tried is the answer of something that only succeeds or fails.
func Tried(err error) Answer[struct{}] { return Answered(struct{}{}, err) }

// OK reports whether there is a value.
func (a Answer[T]) OK() bool { return a.Asked && a.Err == nil }

// missing is the condition for an answer that is not OK.
func (a Answer[T]) missing() Condition {
	if !a.Asked {
		return notAsked()
	}
	return unknown(notAnswered, oneLine(a.Err))
}

// Evidence holds the input of conditions. Zero was not gathered, and makes them Unknown.
type Evidence struct {
	Now time.Time
	// Today is the day by which the end of support is judged, such as 2026-11-26; "" judges none.
	Today string
	// Paused is PauseText of a machine that is paused; "" of another.
	Paused string
	Wanted Wanted
	// Machine holds the findings on the machine, nil when it was not examined.
	Machine  *Machine
	Observed Answer[struct{}] // says what of the machine could not be observed, and why
	// Trust says why the program or its configuration cannot be trusted.
	Trust Answer[struct{}]

	// Detector is the node-problem-detector.
	Containerd, Kubelet, Detector Answer[Service]
	// Runtime is the answer of kube.Runtime, asked of a containerd that runs.
	Runtime Answer[struct{}]
	// Unanswered counts the questions in a row that the container runtime has not answered.
	Unanswered int
	Healthz    Answer[struct{}] // the answer of kubelet's healthz endpoint

	// Probe is the answer of kube.Probe; other errors than a *kube.Fault mean no credential to try.
	Probe Answer[struct{}]
	// Credential is the answer of kube.Client.WhoAmI.
	Credential    Answer[string]
	ServerVersion Answer[string]
	CSRs          Answer[[]kube.CSR]
	Node          Answer[kube.Node]
	Lease         Answer[kube.Lease]
	Pods          Answer[[]corev1.Pod]
	Services      Answer[kube.Services]
	// Serving is when kubelet's serving certificate of the cluster ends; zero for none.
	Serving Answer[time.Time]

	// Arc is the machine's registration with Azure Arc; Authorised whether the cluster still
	// authorises its identity, asked only where kubelet shows that.
	Arc        Answer[Arc]
	Authorised Answer[bool]

	// Upkeep holds the parts of a machine that wear out or change, nil when it was not gathered.
	Upkeep *Upkeep
	// Examined holds the evidence that only Examine gathers, nil when it was not gathered.
	Examined *Examined

	Metadata Answer[Metadata] // the result of a pod's connection to the metadata service

	// Damaged are the names of artifacts whose files are no longer what was verified.
	Damaged Answer[[]string]
	// Drift counts what differs from the applied configuration.
	Drift           Answer[int]
	BudgetExhausted bool
	// Rejected is the configuration that is wanted and has failed; Transition the change under way.
	Rejected   *Rejection
	Transition *transition.Transition
	Waiting    *Waiting // says why the wanted change waits; nil when none does
}

// Wanted is the configuration of the node.
type Wanted struct {
	config.Config
	ArcRole  string        // the role that the identity of an Arc machine needs in the cluster
	Settling time.Duration // for how long kubelet must have run as one process; 0 is 10 s
}

// Machine holds the findings on the machine, Units the runtimes and kubelets that are not ours.
type Machine struct {
	host.Facts
	Installed          bool     // the node's files are on the machine already
	ForeignDirectories []string // hold the state of a node that is not ours
	// Barriers are the owner's firewalls that stop what a node needs; not asked if to be ignored.
	Barriers Answer[[]Firewall]
	Tunnel   bool     // an agent of the cluster's tunnel runs on the node
	PodCIDRs []string // the subnets of the node's own pod network, as far as they are known
}

// distro returns the distribution of the machine.
func (e Evidence) distro() distro.Distro {
	d, _ := distro.Find(cmp.Or(e.Machine, &Machine{}).OSID)
	return d
}

// Firewall is one that stops what a node needs, and the commands that let that pass.
type Firewall struct {
	Name             string
	Closed, Commands []string
}

// Service is a systemd service.
type Service struct {
	Active   bool
	PID      int
	Restarts int       // by systemd, since it was last started by hand (NRestarts)
	Since    time.Time // when its process was started
	Log      []string  // its last lines
}

// Rejection is a configuration that failed and was rolled back.
type Rejection struct {
	Version, Reason string
	At              time.Time
	ByPolicy        bool // the policy of the machine refuses it, so that it was not tried
	Untrusted       bool // the provider has offered it, and the installation has not signed it
}
