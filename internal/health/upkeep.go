package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/release"
)

// Upkeep holds evidence of parts that wear out or change under a node, gathered with each check.
type Upkeep struct {
	host.Upkeep
	Swaps     []string // the swap areas in use on a machine that is a node
	HostNames []string // the machine's current and static names, if kubelet uses them
	CA        string   // the cluster's certificates in PEM, "" if unknown
	// Client is kubelet's client certificate, Principal the service principal's credential.
	Client, Principal Answer[Validity]
	Registries        []string // why registries have recently refused the node's identity
	Polls             *Polls   // of the provider; nil when it is not polled
}

// Validity is the period in which a certificate is valid.
type Validity struct{ From, To time.Time }

// Polls describes the polls of the provider.
type Polls struct {
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	Next     time.Time `json:"next"`
	Answered time.Time `json:"answered,omitzero"` // the time of the last answer
	Result   string    `json:"result"`            // unchanged, offered, deleted or failed
	Error    string    `json:"error,omitempty"`
	// Kept is DeletionWaits or RefusedByPolicy if a deletion has no effect, else "".
	Kept     string `json:"kept,omitempty"`
	Second   string `json:"second,omitempty"`   // SecondRefused or SecondSeen; "" for neither
	Failures int    `json:"failures,omitempty"` // counts the consecutive failed polls
	// Received and Applied are the configVersions that the machine has received and that it runs.
	Received string `json:"received,omitempty"`
	Applied  string `json:"applied,omitempty"`
	// Signed is the time at which the installation signed the configuration of the machine, Certified
	// the time until which its root key certifies the signing key: a node keeps running after that.
	Signed    time.Time `json:"signed,omitzero"`
	Certified time.Time `json:"certified,omitzero"`
}

// lacking fails if found is not empty; form formats the list, as its %s.
func lacking(found []string, reason, form string, cures ...cure) Condition {
	what := fmt.Sprintf(form, strings.Join(found, ", "))
	return when(len(found) > 0, OwnerMachine, reason, what, cures...)
}

func fileSystemsWritable(e Evidence) Condition {
	return lacking(e.Machine.ReadOnly, "ReadOnly", "cannot write below: %s; "+
		"the file system is mounted read-only, often after an error of its disk", "see `dmesg`, "+
		"check it with fsck, and mount it again")
}

const maxInodes = 94 // max percentage of used inodes: kubelet evicts at 95

func inodesFree(e Evidence) Condition {
	var full []string
	for _, dir := range slices.Sorted(maps.Keys(e.Machine.InodesUsed)) {
		if used := e.Machine.InodesUsed[dir]; used > maxInodes {
			full = append(full, fmt.Sprintf("%s (%d %% of the inodes in use)", dir, used))
		}
	}
	return lacking(full, "InodesFull", "no inodes are left for new files below: %s",
		"find the directories with the most files with `du --inodes -xd2 DIRECTORY | sort -n`, and "+
			"remove what is not needed")
}

func swapOff(e Evidence) Condition {
	if e.Wanted.Node.Kubelet.KeepsSwap() {
		return holds()
	}
	return lacking(e.Upkeep.Swaps, "SwapOn", "swap is on, and kubelet refuses to start with it: "+
		"%s", "turn it off with `aks-flex-node drift --repair`, and find out which program turned it on")
}

// registriesAllow fails if a registry refuses the node's identity: its images are not pulled.
func registriesAllow(e Evidence) Condition {
	refused := e.Upkeep.Registries
	return when(len(refused) > 0, OwnerAzure, "PullRefused", "images cannot be pulled: "+
		strings.Join(refused, ", "), "wait some minutes after a new role assignment; kubelet retries "+
		"automatically")
}

func rebootNotPending(e Evidence) Condition {
	return when(e.Upkeep.RebootRequired, OwnerMachine, "RebootRequired", "an update of the system "+
		"waits for a reboot ("+e.distro().Reboot+")", "drain the node, and run `reboot`")
}

// hostNameStable checks the host name, which a kubelet without a node name takes at each start.
func hostNameStable(e Evidence) Condition {
	wanted := e.Wanted.Agent.NodeName
	if wanted == "localhost" || strings.HasPrefix(wanted, "localhost.") {
		return fails(OwnerConfiguration, "HostNameNotUnique", "the Node's name would be "+wanted+
			", which many machines have", "set agent.nodeName, or run `hostnamectl set-hostname`")
	}
	for _, name := range e.Upkeep.HostNames {
		if strings.ToLower(name) != wanted {
			return fails(OwnerMachine, "Changed", fmt.Sprintf("this machine is called %q now, and kubelet, "+
				"which takes its name from it, will not be Node %s any more when it starts again",
				name, wanted),
				"run `aks-flex-node bootstrap`, which sets the Node's name for kubelet").
				run("or `hostnamectl set-hostname %s`", wanted)
		}
	}
	return holds()
}

const settled = 10 * time.Minute // the time that synchronisation may take after a boot

// timeSynchronized fails if nothing corrects the clock: it drifts until certificates are refused.
func timeSynchronized(e Evidence) Condition {
	switch c := e.Upkeep.Clock; {
	case c == nil:
		return notAsked()
	case c.Synchronized, c.Container:
		return holds()
	case c.Uptime < settled:
		return unknown("Starting", "the machine has just started, and its clock is not synchronised yet")
	case len(c.Keepers) == 0:
		return fails(OwnerMachine, "NoTimeService", "no time service runs on this machine",
			"run `timedatectl set-ntp true`, or install chrony")
	default:
		return fails(OwnerNetwork, "NotSynchronized", "the clock is not synchronised: "+
			strings.Join(c.Keepers, ", ")+" runs and gets no answer from a time server", "see "+
			"`timedatectl timesync-status` or `chronyc sources`, and allow outgoing UDP port 123")
	}
}

func clusterCAValid(e Evidence) Condition {
	if e.Upkeep.CA == "" {
		return unknown(notChecked, "the cluster's CA is not known")
	}
	var ended string
	all, _ := cert.ParseCertsPEM([]byte(e.Upkeep.CA)) // the configuration was checked
	for _, ca := range all {
		if e.Now.Before(ca.NotAfter) && !e.Now.Before(ca.NotBefore) {
			return holds()
		}
		ended = fmt.Sprintf("%s (%s to %s)", ca.Subject, ca.NotBefore.UTC().Format(time.DateOnly),
			ca.NotAfter.UTC().Format(time.DateOnly))
	}
	return fails(OwnerCluster, "NotValidNow", "no certificate of the cluster's CA is valid now: "+
		ended+"; ask the cluster's operator for a configuration with the current CA")
}

// renewal describes how a certificate is kept valid: margin returns how long before the end of its
// life its successor must exist, given the length of its life; the texts complete the message.
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
		return fails(r.owner, r.reason, r.what+" ends "+within(left)+", at "+until+r.expires, r.renew)
	}
	return holds()
}

func within(left time.Duration) string {
	if days := int(left / (24 * time.Hour)); days > 1 {
		return fmt.Sprintf("in %d days", days)
	}
	return fmt.Sprintf("in %d hours", int(left/time.Hour))
}

// kubeletCertificate checks the certificate, which kubelet renews with 10 to 30 % of its life left.
func kubeletCertificate(e Evidence) Condition {
	return renewal{
		what: "kubelet's client certificate", owner: OwnerCluster,
		margin:  func(life time.Duration) time.Duration { return life / 20 },
		expired: ", and the API server no longer knows this node",
		expires: ", and kubelet has received no new one: its certificate requests are not approved",
		reason:  "NotRenewed", renew: "see `kubectl get csr`", late: joinAgain,
	}.judge(e, e.Upkeep.Client)
}

// soon is the time before expiry within which an operator must renew a credential.
const soon = 14 * 24 * time.Hour

// principalCredential warns of an expiring credential, which only its owner can renew.
func principalCredential(e Evidence) Condition {
	const renew cure = "create a new one, add it to the application in Entra ID, and put it there"
	what := "the secret of the service principal (azure.servicePrincipal.secretExpires)"
	if sp := e.Wanted.Azure.ServicePrincipal; sp != nil && sp.CertificateFile != "" {
		what = "the certificate of the service principal (azure.servicePrincipal.certificateFile)"
	}
	return renewal{
		what: what, owner: OwnerAzure,
		margin:  func(life time.Duration) time.Duration { return min(soon, life/3) },
		expired: ", and Entra ID issues no more tokens for it",
		reason:  "ExpiringSoon", renew: renew, late: renew,
	}.judge(e, e.Upkeep.Principal)
}

// The provider's answers about another machine with the same key or for the same node.
const (
	SecondRefused = "refused" // this machine is refused, as the other one is the node
	SecondSeen    = "seen"    // the other one is refused
)

// onlyMachine fails if another machine uses this node's key, as after a disk was copied.
func onlyMachine(e Evidence) Condition {
	const reason = "SecondMachine"
	p := e.Upkeep.Polls
	if p != nil && p.Second == SecondRefused {
		return fails(OwnerConfiguration, reason, "the resource provider refuses this machine: "+
			"another machine is registered as this node; if this machine is a copy, shut it down; if it "+
			"should be the node, ask for a new configuration URL with regenerateToken", "join with that "+
			"URL: `aks-flex-node agent --config-url -`")
	}
	return when(p != nil && p.Second == SecondSeen, OwnerConfiguration, reason, "the "+
		"resource provider refuses another machine that claims to be this node; if that machine is a "+
		"copy of this one, shut it down")
}

// unanswered is the time for which the provider may not answer, over more than one poll: failed
// polls are five minutes apart, or up to an hour if the owner configures that.
const unanswered = 15 * time.Minute

// providerAnswers fails if the provider is silent: the node keeps running, but receives no change.
func providerAnswers(e Evidence) Condition {
	p := e.Upkeep.Polls
	if !e.Wanted.ContinuousMonitoring || p == nil {
		return holds()
	}
	since := cmp.Or(p.Answered, p.First)
	silent, late := p.Failures > 1 && p.Second != SecondRefused, e.Now.Sub(since) >= unanswered
	if silent && !late && p.Answered.IsZero() { // the agent has just started
		return unknown(notAnswered, "the resource provider has accepted no poll yet: "+p.Error)
	}
	return when(silent && late, OwnerCluster, notAnswered, "the resource provider has accepted no "+
		"poll since "+since.UTC().Format(time.RFC3339)+", so this node receives no changes: "+
		p.Error, "see `aks-flex-node endpoints`, and contact the operator of the provider")
}

// notVulnerable fails for releases that are known to let a container break out.
func notVulnerable(e Evidence) Condition { return said(e, "Vulnerable", e.Wanted.Flaw) }

func versionsSupported(e Evidence) Condition {
	return said(e, "EndOfSupport", func(name, version string) string {
		if day := release.SupportEnded(name, version, e.Today); day != "" {
			return fmt.Sprintf("%s %s gets no fixes after %s: upgrade to a newer minor version", name,
				version, day)
		}
		return ""
	})
}

func said(e Evidence, reason string, of func(name, version string) string) Condition {
	all := slices.DeleteFunc([]string{of("kubelet", e.Wanted.Kubernetes.Version),
		of("containerd", e.Wanted.Containerd.Version), of("runc", e.Wanted.Runc.Version),
	}, func(text string) bool { return text == "" })
	return when(len(all) > 0, OwnerConfiguration, reason, strings.Join(all, "; "))
}
