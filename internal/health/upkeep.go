package health

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/host"
)

// Upkeep is evidence of what wears out or changes under a node, gathered with each check.
type Upkeep struct {
	host.Upkeep
	// Swaps are the swap areas in use on a machine that is a node.
	Swaps []string
	// HostNames are the names that the machine has, now and after a boot, where kubelet goes by
	// them: the list is empty where kubelet is given its Node's name.
	HostNames []string
	// CA holds the cluster's certificates in PEM, "" when they are not known.
	CA string
	// Client is kubelet's client certificate, asked for on a node that shows one; Principal the
	// credential of the service principal, asked for where it is known when that ends.
	Client, Principal Answer[Validity]
	// Registries are why registries have given kubelet nothing for the node's identity lately.
	Registries []string
	// Polls describes the polls of the provider; nil when it is not polled.
	Polls *Polls
}

// Validity is from when to when a certificate is valid.
type Validity struct{ From, To time.Time }

// Polls describes the polls of the provider.
type Polls struct {
	// First is when it was asked for the first time, Answered when it has answered last.
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	Next     time.Time `json:"next"`
	Answered time.Time `json:"answered,omitzero"`
	// Result is unchanged, offered, deleted or failed; Error says why it has failed.
	Result string `json:"result"`
	Error  string `json:"error,omitempty"`
	// Kept is why the machine is not given back, though its resource was deleted: DeletionWaits or
	// RefusedByPolicy; "" while that is not so.
	Kept string `json:"kept,omitempty"`
	// Second is SecondRefused or SecondSeen; "" without another machine.
	Second string `json:"second,omitempty"`
	// Failures counts the polls in a row that have failed.
	Failures int `json:"failures,omitempty"`
	// Received and Applied are the configVersions that the machine has and that it runs on.
	Received string `json:"received,omitempty"`
	Applied  string `json:"applied,omitempty"`
	// Signed is when the installation has signed what the machine has, Certified is until when its
	// root key certifies the key that has: a node goes on after that.
	Signed    time.Time `json:"signed,omitzero"`
	Certified time.Time `json:"certified,omitzero"`
}

// lacking judges a list of what is missing or wrong, which the form of the message has as %s.
func lacking(found []string, reason, form string, cures ...cure) Condition {
	if len(found) > 0 {
		return fails(OwnerMachine, reason, fmt.Sprintf(form, strings.Join(found, ", ")), cures...)
	}
	return holds()
}

func fileSystemsWritable(e Evidence) Condition {
	return lacking(e.Upkeep.ReadOnly, "ReadOnly", "cannot write below: %s; "+
		"the file system is mounted read-only, often after an error of its disk", "see `dmesg`, "+
		"check it with fsck, and mount it again")
}

// mostInodes is the part of the inodes that may be in use, in percent: kubelet evicts at 95.
const mostInodes = 94

func inodesFree(e Evidence) Condition {
	var full []string
	for _, dir := range slices.Sorted(maps.Keys(e.Upkeep.InodesUsed)) {
		if used := e.Upkeep.InodesUsed[dir]; used > mostInodes {
			full = append(full, fmt.Sprintf("%s (%d %% of the inodes in use)", dir, used))
		}
	}
	return lacking(full, "InodesFull", "there is no room for more files below: %s", "find what has so "+
		"many with `du --inodes -xd2 /var | sort -n`, and remove it")
}

func swapOff(e Evidence) Condition {
	if e.Wanted.Node.Kubelet.KeepsSwap() {
		return holds()
	}
	return lacking(e.Upkeep.Swaps, "SwapOn", "swap is on, and kubelet refuses to start with it: "+
		"%s", "turn it off with `aks-flex-node drift --repair`, and find out what turned it on")
}

// registriesAllow: an image of a registry that refuses the node's identity is not pulled.
func registriesAllow(e Evidence) Condition {
	c := lacking(e.Upkeep.Registries, "PullRefused", "images cannot be pulled: %s",
		"wait some minutes after a new role assignment; kubelet tries again by itself")
	if c.Status == False {
		c.Owner = OwnerAzure
	}
	return c
}

func rebootNotPending(e Evidence) Condition {
	if e.Upkeep.RebootRequired {
		return fails(OwnerMachine, "RebootRequired", "an update of the system waits for a reboot "+
			"(/run/reboot-required)", "drain the node, and run `reboot`")
	}
	return holds()
}

// hostNameStable: a kubelet that is not told its Node's name takes the machine's at each start, and
// with another name it is refused.
func hostNameStable(e Evidence) Condition {
	wanted := e.Wanted.Agent.NodeName
	if wanted == "localhost" || strings.HasPrefix(wanted, "localhost.") {
		return fails(OwnerConfiguration, "HostNameNotUnique", "the Node's name would be "+wanted+
			", which many machines have", "set agent.nodeName, or run `hostnamectl set-hostname`")
	}
	for _, name := range e.Upkeep.HostNames {
		if strings.ToLower(name) != wanted {
			return fails(OwnerMachine, "Changed", fmt.Sprintf("this machine is called %q now, and kubelet, "+
				"which takes its name from it, will not be Node %s any more when it starts again", name, wanted),
				"run `aks-flex-node bootstrap`, which tells kubelet the Node's name").
				run("or `hostnamectl set-hostname %s`", wanted)
		}
	}
	return holds()
}

// settled is the time that a time service may take after a boot.
const settled = 10 * time.Minute

// timeSynchronized: a clock that nothing corrects drifts until certificates and tokens are refused.
func timeSynchronized(e Evidence) Condition {
	if e.Upkeep.Clock == nil {
		return notAsked()
	}
	switch c := e.Upkeep.Clock; {
	case c.Synchronized, c.Container:
		return holds()
	case c.Uptime < settled:
		return unknown("Starting", "the machine has just started, and its clock is not synchronised yet")
	case len(c.Keepers) == 0:
		return fails(OwnerMachine, "NoTimeService", "no time service runs on this machine",
			"run `timedatectl set-ntp true`, or install chrony")
	default:
		return fails(OwnerNetwork, "NotSynchronized", "the clock is not synchronised: "+
			strings.Join(c.Keepers, ", ")+" runs and has no time server that answers", "see "+
			"`timedatectl timesync-status` or `chronyc sources`, and let UDP port 123 out")
	}
}

// clusterCAValid: the CA that the configuration gives must be valid now.
func clusterCAValid(e Evidence) Condition {
	if e.Upkeep.CA == "" {
		return unknown(notChecked, "the cluster's CA is not known")
	}
	var ended string
	for rest := []byte(e.Upkeep.CA); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue // the configuration was checked
		}
		if e.Now.Before(ca.NotAfter) && !e.Now.Before(ca.NotBefore) {
			return holds()
		}
		ended = fmt.Sprintf("%s (%s to %s)", ca.Subject, ca.NotBefore.UTC().Format(time.DateOnly),
			ca.NotAfter.UTC().Format(time.DateOnly))
	}
	return fails(OwnerCluster, "NotValidNow", "no certificate of the cluster's CA is valid now: "+
		ended+"; ask the cluster's operator for a configuration with the present one")
}

// renewal describes how a certificate is kept valid: margin returns how long before its end its
// successor must exist, given the length of its life; the texts complete the message.
type renewal struct {
	what, owner     string
	margin          func(life time.Duration) time.Duration
	expired         string
	reason, expires string
	late, renew     cure
}

func (r renewal) judge(e Evidence, a Answer[Validity]) Condition {
	v := a.Value
	until := v.To.UTC().Format(time.RFC3339)
	switch left := v.To.Sub(e.Now); {
	case !a.Asked:
		return holds()
	case !a.OK():
		return fails(r.owner, "Unreadable", r.what+" cannot be read: "+oneLine(a.Err), r.late)
	case e.Now.Before(v.From):
		return fails(OwnerMachine, "NotYetValid", r.what+" is valid only from "+
			v.From.UTC().Format(time.RFC3339)+" on: this machine's clock is wrong", "see `timedatectl`")
	case left <= 0:
		return fails(r.owner, "Expired", r.what+" has expired at "+until+r.expired, r.late)
	case left < r.margin(v.To.Sub(v.From)):
		return fails(r.owner, r.reason, r.what+" ends "+within(left)+", at "+until+r.expires,
			r.renew)
	}
	return holds()
}

// within says how long it is until something, in whole days or hours.
func within(left time.Duration) string {
	if days := int(left / (24 * time.Hour)); days > 1 {
		return fmt.Sprintf("in %d days", days)
	}
	return fmt.Sprintf("in %d hours", int(left/time.Hour))
}

// kubeletCertificate: kubelet asks for the next one when 10 to 30 % of the time is left.
func kubeletCertificate(e Evidence) Condition {
	return renewal{
		what: "kubelet's client certificate", owner: OwnerCluster,
		margin:  func(life time.Duration) time.Duration { return life / 20 },
		expired: ", and the API server no longer knows this node",
		late:    joinAgain,
		reason:  "NotRenewed",
		expires: ", and kubelet has not been given a new one: no one approves its requests",
		renew:   "see `kubectl get csr`",
	}.judge(e, e.Upkeep.Client)
}

// soon is the time before its end in which an operator has to renew a credential.
const soon = 14 * 24 * time.Hour

// principalCredential: only its owner renews the certificate or the secret of a service principal.
// When a secret ends only its owner knows.
func principalCredential(e Evidence) Condition {
	const renew cure = "have a new one made, add it to the application in Entra ID, and put it there"
	what := "the secret of the service principal (azure.servicePrincipal.secretExpires)"
	if sp := e.Wanted.Azure.ServicePrincipal; sp != nil && sp.CertificateFile != "" {
		what = "the certificate of the service principal (azure.servicePrincipal.certificateFile)"
	}
	return renewal{
		what:    what,
		owner:   OwnerAzure,
		margin:  func(life time.Duration) time.Duration { return min(soon, life/3) },
		expired: ", and Entra ID gives no more tokens for it",
		reason:  "ExpiringSoon", renew: renew, late: renew,
	}.judge(e, e.Upkeep.Principal)
}

// What the provider says of another machine with the key of this one, or that wants to be its node.
const (
	SecondRefused = "refused" // this machine is, since the other one is the node
	SecondSeen    = "seen"    // the other one is refused
)

// SecondOf returns the form of what a poll has reported about another machine.
func SecondOf(refused, seen bool) string {
	switch {
	case refused:
		return SecondRefused
	case seen:
		return SecondSeen
	}
	return ""
}

// onlyMachine: a disk that was copied has the machine's key too.
func onlyMachine(e Evidence) Condition {
	if p := e.Upkeep.Polls; p != nil && p.Second == SecondRefused {
		return fails(OwnerConfiguration, secondMachine, "the resource provider refuses this machine: "+
			"another one is this node, with the same key or one that was registered before; if this "+
			"machine is a copy, wipe it; if it is to be the node, ask for a new configuration URL with "+
			"regenerateToken", "give it to this machine with `aks-flex-node agent --config-url -`")
	} else if p != nil && p.Second == SecondSeen {
		return fails(OwnerConfiguration, secondMachine, "the resource provider has seen, and refuses, "+
			"another machine that says it is this node; if its disk is a copy of this one, wipe it")
	}
	return holds()
}

const secondMachine = "SecondMachine"

// unanswered is for how long the provider may not answer, though it was asked more than once: polls
// that fail are five minutes apart, or as long as an hour where the owner says so.
const unanswered = 15 * time.Minute

// providerAnswers: a node whose provider does not answer goes on, and receives no change.
func providerAnswers(e Evidence) Condition {
	p := e.Upkeep.Polls
	if !e.Wanted.ContinuousMonitoring || p == nil {
		return holds()
	}
	since := cmp.Or(p.Answered, p.First)
	if p.Failures < 2 || p.Second == SecondRefused || e.Now.Sub(since) < unanswered {
		return holds()
	}
	return fails(OwnerCluster, "NotAnswered", "the resource provider has not answered since "+
		since.UTC().Format(time.RFC3339)+", so that this node is told of no change: "+
		p.Error, "see `aks-flex-node endpoints`, and ask its operator")
}
