package health

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/distro"
	"github.com/Azure/AKSFlexNode/internal/untrusted"
)

// The types of the conditions that other code refers to; the catalogue has all types.
const (
	NodeObserved        = "NodeObserved"
	ClusterCAValid      = "ClusterCAValid"
	PrincipalCredential = "PrincipalCredential"
	KubeletCertificate  = "KubeletCertificate"
	ContainerdRunning   = "ContainerdRunning"
	KubeletRunning      = "KubeletRunning"
	KubeletStable       = "KubeletStable"
	APIServerReachable  = "APIServerReachable"
	CredentialValid     = "CredentialValid"
	VersionsCompatible  = "VersionsCompatible"
	CertificateIssued   = "CertificateIssued"
	KubeletHealthy      = "KubeletHealthy"
	NodeRegistered      = "NodeRegistered"
	LeaseRenewed        = "LeaseRenewed"
	NodeReady           = "NodeReady"
	NodePressure        = "NodePressure"
	PodSubnetsAgree     = "PodSubnetsAgree"
	RunsAsConfigured    = "RunsAsConfigured"
	PodsSynchronized    = "PodsSynchronized"
	LabelsApplied       = "LabelsApplied"
	FirewallOpen        = "FirewallOpen"
	ArcConnected        = "ArcConnected"
	HostAsConfigured    = "HostAsConfigured"
	NoChangeWaiting     = "NoChangeWaiting"
	ServicesReachable   = "ServicesReachable"

	// Only Examine evaluates these.
	DefaultRoute       = "DefaultRoute"
	PathMTU            = "PathMTU"
	EndpointsReachable = "EndpointsReachable"
	NamesResolved      = "NamesResolved"
	ClockAccurate      = "ClockAccurate"
	EndpointsTrusted   = "EndpointsTrusted"
)

// Use is a set of occasions on which a condition is evaluated, and of its properties.
type Use uint

// The occasions.
const (
	Preflight Use = 1 << iota // must not be False before a machine is changed; may be Unknown
	Gate                      // must be True before a change is committed
	GateLocal                 // the same, without the cluster
	Network                   // must not be False for the pod subnets that a join has learned
	Advice                    // shown after the gate; only the cluster's operator can act on it
	Watch                     // in the status: all that are not evaluated only at a caller's request

	caution   // shown before a change, without preventing it
	explained // the services' logs explain why it is False
	harmless  // may be False on a healthy node, but is shown
	forRoot   // misleading unless the caller is root and sees the node's own files
	underived // about a file or a setting, independent of other faults

	// The condition is not evaluated without this part of the evidence.
	ofMachine
	ofUpkeep
	ofExamined
	ofEndpoints
	ofKubelet
	ofServer
	ofNode
	ofPods
	ofServices
	ofDamaged
)

type entry struct {
	name  string
	layer Layer
	check func(Evidence) Condition
	use   Use
}

// catalogue lists all conditions, from the machine outwards: the first failure explains the rest.
func catalogue() []entry {
	return []entry{
		{"ConfigurationValid", LayerConfiguration, configurationValid, ofExamined},
		{"RootPrivileges", LayerMachine, rootPrivileges, Watch | Preflight | ofMachine | forRoot},
		{"StateReadable", LayerMachine, stateReadable, ofExamined | forRoot},
		{"SystemSupported", LayerMachine, systemSupported, Watch | Preflight | ofMachine},
		{"ControlGroups", LayerMachine, controlGroups, ofExamined},
		{"KernelModules", LayerMachine, kernelModules, ofExamined},
		{"ToolsInstalled", LayerMachine, toolsInstalled, Watch | Preflight | ofMachine},
		{"FileSystemsWritable", LayerMachine, fileSystemsWritable, Watch | Preflight | ofMachine},
		{"DiskSpace", LayerMachine, diskSpace, Watch | Preflight | ofMachine},
		{"InodesFree", LayerMachine, inodesFree, Watch | Preflight | ofMachine},
		{NodeObserved, LayerMachine, nodeObserved, Watch},
		{"MemorySize", LayerMachine, memorySize, Watch | Preflight | ofMachine},
		{"SizeAdvised", LayerMachine, sizeAdvised, Watch | caution | harmless | ofMachine},
		{"ProgramTrusted", LayerMachine, programTrusted, Watch | Preflight},
		{"StoreIntact", LayerMachine, storeIntact, Watch | ofDamaged},
		{"RuntimeOwned", LayerMachine, runtimeOwned, Watch | Preflight | ofMachine | forRoot},
		{"DirectoriesFree", LayerMachine, directoriesFree, Watch | Preflight | ofMachine | forRoot},
		{"ReservationsFit", LayerMachine, reservationsFit, Watch | Preflight | ofMachine},
		{"SwapOff", LayerMachine, swapOff, Watch | ofUpkeep},
		{"SwapLimited", LayerMachine, swapLimited, Watch | Preflight | ofMachine},
		{"HostNameStable", LayerMachine, hostNameStable, Watch | ofUpkeep},
		{"PodFeatures", LayerMachine, podFeatures, ofExamined},
		{FirewallOpen, LayerMachine, firewallOpen, Watch | caution | harmless | ofMachine | forRoot},
		{"MetadataGuarded", LayerMachine, metadataGuarded, Watch},
		{"PackagesInOrder", LayerMachine, packagesInOrder, harmless | ofExamined},
		{"RebootNotPending", LayerMachine, rebootNotPending, Watch | harmless | ofUpkeep},
		{DefaultRoute, LayerNetwork, defaultRoute, ofExamined},
		{"NodeAddressPresent", LayerNetwork, nodeAddressPresent, Watch | Preflight | Gate | GateLocal},
		{"PodSubnetsFit", LayerNetwork, podSubnetsFit, Watch | Preflight | Network | ofMachine},
		{PathMTU, LayerNetwork, pathMTU, ofEndpoints},
		{EndpointsReachable, LayerNetwork, endpointsReachable, ofEndpoints},
		{"ResolverConfigured", LayerDNS, resolverConfigured, Watch | caution | harmless | ofMachine},
		{NamesResolved, LayerDNS, namesResolved, ofEndpoints},
		{ClockAccurate, LayerClock, clockAccurate, ofEndpoints},
		{"TimeSynchronized", LayerClock, timeSynchronized, Watch | harmless | ofUpkeep | underived},
		{ClusterCAValid, LayerTLS, clusterCAValid, Watch | ofUpkeep | underived},
		{EndpointsTrusted, LayerTLS, endpointsTrusted, ofEndpoints},
		{PrincipalCredential, LayerCredential, principalCredential, Watch | ofUpkeep | underived},
		{KubeletCertificate, LayerCredential, kubeletCertificate, Watch | ofUpkeep},
		{CredentialValid, LayerCredential, credentialValid, Watch | Preflight | Gate},
		{CertificateIssued, LayerCredential, certificateIssued, Watch},
		{ArcConnected, LayerCredential, arcConnected, Watch | forRoot},
		{"RegistriesAllow", LayerCredential, registriesAllow, Watch | harmless | ofUpkeep},
		{APIServerReachable, LayerAPIServer, apiServerReachable, Watch | Preflight | Gate},
		{VersionsCompatible, LayerAPIServer, versionsCompatible, Watch | Preflight | Gate | ofServer},
		{"ClusterUpgradable", LayerAPIServer, clusterUpgradable, Watch | harmless | ofServer},
		{ContainerdRunning, LayerRuntime, containerdRunning, Watch | Gate | GateLocal | explained},
		{"OwnersSettings", LayerKubelet, ownersSettings, ofExamined},
		{KubeletRunning, LayerKubelet, kubeletRunning, Watch | Gate | GateLocal | explained | ofKubelet},
		{KubeletStable, LayerKubelet, kubeletStable, Watch | Gate | GateLocal | explained | ofKubelet},
		{KubeletHealthy, LayerKubelet, kubeletHealthy, Watch | Gate | GateLocal | explained},
		{"ServingCertificate", LayerKubelet, servingCertificate, Watch | Advice},
		{"NodeOwned", LayerNode, nodeOwned, Watch | Preflight},
		{NodeRegistered, LayerNode, nodeRegistered, Watch | Gate | explained},
		{LeaseRenewed, LayerNode, leaseRenewed, Watch | Gate},
		{NodeReady, LayerNode, nodeReady, Watch | Gate | ofNode},
		{NodePressure, LayerNode, nodePressure, Watch | Gate | Advice | ofNode},
		{RunsAsConfigured, LayerNode, runsAsConfigured, Watch | Gate | ofNode},
		{PodSubnetsAgree, LayerNode, podSubnetsAgree, Watch | Gate | ofMachine | ofNode},
		{PodsSynchronized, LayerNode, podsSynchronized, Watch | Gate | ofPods},
		{LabelsApplied, LayerNode, labelsApplied, Watch | Gate | ofNode},
		{"TaintsApplied", LayerNode, taintsApplied, Watch | Advice | ofNode},
		{"PodsNetworked", LayerNode, podsNetworked, Watch | ofPods},
		{ServicesReachable, LayerNode, servicesReachable, Watch | Advice | harmless | ofServices},
		{"ConfigurationAccepted", LayerNode, configurationAccepted, Watch | forRoot},
		{HostAsConfigured, LayerNode, hostAsConfigured, Watch},
		{NoChangeWaiting, LayerNode, noChangeWaiting, Watch | harmless},
		{"NotPaused", LayerNode, notPaused, Watch | harmless | underived},
		{"NotVulnerable", LayerNode, notVulnerable, Watch | harmless | underived},
		{"OnlyMachine", LayerNode, onlyMachine, Watch | harmless | ofUpkeep | underived},
		{"ProviderAnswers", LayerNode, providerAnswers, Watch | harmless | ofUpkeep},
		{"VersionsSupported", LayerNode, versionsSupported, Watch | harmless | underived},
	}
}

// Evaluate evaluates the conditions of an occasion, in the order of the catalogue.
func Evaluate(on Use, e Evidence) []Condition {
	conditions := judged(e, func(known entry) bool { return known.use&on != 0 })
	for i, c := range conditions {
		conditions[i].Message = Clip(c.Message, longestMessage)
	}
	return conditions
}

// Cautions returns the failed conditions that do not prevent a change, with unabridged messages.
func Cautions(e Evidence) []Condition {
	return failing(judged(e, func(known entry) bool { return known.use&caution != 0 }))
}

func judged(e Evidence, wanted func(entry) bool) []Condition {
	var conditions []Condition
	for _, known := range catalogue() {
		if wanted(known) {
			c := known.judge(&e)
			c.Type, c.Since = known.name, e.Now.UTC().Truncate(time.Second)
			conditions = append(conditions, c)
		}
	}
	return conditions
}

// Explained reports whether the services' logs explain why a condition is False.
func (c Condition) Explained() bool { return c.Status == False && c.of(explained) }

// Ill reports whether a condition makes its node unhealthy. Unknown ones and advice do not.
func (c Condition) Ill() bool { return c.Status == False && !c.Advises() }

// Advises reports whether a condition can be False on a working node.
func (c Condition) Advises() bool { return c.of(harmless) }

func (c Condition) of(u Use) bool {
	return slices.ContainsFunc(catalogue(), func(known entry) bool {
		return known.name == c.Type && known.use&u != 0
	})
}

const longestMessage = 1024 // the resource provider's limit of a message, in bytes

// judge evaluates a condition if its evidence was gathered.
func (c entry) judge(e *Evidence) Condition {
	if c.use&ofMachine != 0 && e.Machine == nil || c.use&ofUpkeep != 0 && e.Upkeep == nil ||
		c.use&(ofExamined|ofEndpoints) != 0 && e.Examined == nil {
		return notAsked()
	}
	for _, part := range []struct {
		of     Use
		answer interface {
			OK() bool
			missing() Condition
		}
	}{
		{ofEndpoints, &cmp.Or(e.Examined, &Examined{}).Endpoints}, {ofKubelet, &e.Kubelet},
		{ofServer, &e.ServerVersion}, {ofNode, &e.Node}, {ofPods, &e.Pods},
		{ofServices, &e.Services}, {ofDamaged, &e.Damaged},
	} {
		if c.use&part.of != 0 && !part.answer.OK() {
			return part.answer.missing()
		}
	}
	return c.check(*e)
}

// Clip returns a text as one line; most is its max length in bytes.
func Clip(text string, most int) string { return untrusted.Cut(untrusted.Line(text), most) }

// ClipLines returns untrusted lines as a text; most is its max length in bytes.
func ClipLines(lines []string, most int) string {
	clean := make([]string, len(lines))
	for i, line := range lines {
		clean[i] = untrusted.Line(line)
	}
	return untrusted.Cut(strings.Join(clean, "\n"), most)
}

func holds() Condition { return Condition{Status: True, Reason: "AsExpected"} }

// noted returns a True condition with a note for the operator.
func noted(reason, message string) Condition {
	return Condition{Status: True, Reason: reason, Message: untrusted.Text(message).String()}
}

// cure is advice. Commands in it, in backticks, are our own constants, not quoted text.
type cure = distro.Advice

var command = regexp.MustCompile("`([^`]+)`")

// fails returns a False condition. what, the fault, may quote untrusted text.
func fails(owner, reason, what string, cures ...cure) Condition {
	c := Condition{Status: False, Reason: untrusted.Reason(reason), Owner: owner,
		Message: untrusted.Text(what).String()}
	for _, text := range cures {
		c.Message += "; " + string(text)
		for _, found := range command.FindAllStringSubmatch(string(text), -1) {
			c.Remedies = append(c.Remedies, found[1])
		}
	}
	return c
}

func when(wrong bool, owner, reason, what string, cures ...cure) Condition {
	if wrong {
		return fails(owner, reason, what, cures...)
	}
	return holds()
}

// plainWord matches a value that is safe as one word of a command.
var plainWord = regexp.MustCompile(`^[\w][\w.=:,/@+-]*$`)

// run adds a cure with a command whose %s are values that others may have chosen.
func (c Condition) run(text cure, values ...string) Condition {
	all := untrusted.Text(strings.Join(values, " "))
	c.Message += "; " + fmt.Sprintf(string(text), all)
	strange := func(s string) bool { return !plainWord.MatchString(s) }
	if !slices.ContainsFunc(values, strange) {
		c.Remedies = append(c.Remedies, fmt.Sprintf(command.FindStringSubmatch(string(text))[1], all))
	}
	return c
}

func unknown(reason, message string) Condition {
	return Condition{Status: Unknown, Reason: untrusted.Reason(reason),
		Message: untrusted.Text(message).String()}
}

func notAsked() Condition { return unknown(notChecked, "this was not checked") }

const notChecked, notAnswered = "NotChecked", "NotAnswered"

// NotChecked reports whether the evidence for a condition was not gathered.
func (c Condition) NotChecked() bool { return c.Status == Unknown && c.Reason == notChecked }
