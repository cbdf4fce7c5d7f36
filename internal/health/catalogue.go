package health

import (
	"slices"
	"strings"
)

// The types of the conditions.
const (
	SystemSupported       = "SystemSupported"
	RootPrivileges        = "RootPrivileges"
	ToolsInstalled        = "ToolsInstalled"
	DiskSpace             = "DiskSpace"
	MemorySize            = "MemorySize"
	SizeAdvised           = "SizeAdvised"
	FileSystemsWritable   = "FileSystemsWritable"
	InodesFree            = "InodesFree"
	NodeObserved          = "NodeObserved"
	SwapOff               = "SwapOff"
	RebootNotPending      = "RebootNotPending"
	HostNameStable        = "HostNameStable"
	TimeSynchronized      = "TimeSynchronized"
	ClusterCAValid        = "ClusterCAValid"
	PrincipalCertificate  = "PrincipalCertificate"
	KubeletCertificate    = "KubeletCertificate"
	ProgramTrusted        = "ProgramTrusted"
	RuntimeOwned          = "RuntimeOwned"
	DirectoriesFree       = "DirectoriesFree"
	ReservationsFit       = "ReservationsFit"
	NodeAddressPresent    = "NodeAddressPresent"
	PodSubnetsFit         = "PodSubnetsFit"
	ContainerdRunning     = "ContainerdRunning"
	KubeletRunning        = "KubeletRunning"
	KubeletStable         = "KubeletStable"
	APIServerReachable    = "APIServerReachable"
	CredentialValid       = "CredentialValid"
	VersionsCompatible    = "VersionsCompatible"
	NodeOwned             = "NodeOwned"
	CertificateIssued     = "CertificateIssued"
	KubeletHealthy        = "KubeletHealthy"
	NodeRegistered        = "NodeRegistered"
	LeaseRenewed          = "LeaseRenewed"
	NodeReady             = "NodeReady"
	PodSubnetsAgree       = "PodSubnetsAgree"
	RunsAsConfigured      = "RunsAsConfigured"
	PodsSynchronized      = "PodsSynchronized"
	LabelsApplied         = "LabelsApplied"
	TaintsApplied         = "TaintsApplied"
	FirewallOpen          = "FirewallOpen"
	MetadataGuarded       = "MetadataGuarded"
	ServicesReachable     = "ServicesReachable"
	ServingCertificate    = "ServingCertificate"
	ArcConnected          = "ArcConnected"
	StoreIntact           = "StoreIntact"
	HostAsConfigured      = "HostAsConfigured"
	ConfigurationAccepted = "ConfigurationAccepted"
	NoChangeWaiting       = "NoChangeWaiting"
	ProviderAnswers       = "ProviderAnswers"

	// Only Examine tells these.
	ConfigurationValid = "ConfigurationValid"
	StateReadable      = "StateReadable"
	ProcessorSupported = "ProcessorSupported"
	ControlGroups      = "ControlGroups"
	KernelModules      = "KernelModules"
	PortsFree          = "PortsFree"
	DiskResponsive     = "DiskResponsive"
	PackagesInOrder    = "PackagesInOrder"
	DefaultRoute       = "DefaultRoute"
	PathMTU            = "PathMTU"
	EndpointsReachable = "EndpointsReachable"
	ResolverConfigured = "ResolverConfigured"
	NamesResolved      = "NamesResolved"
	ClockAccurate      = "ClockAccurate"
	EndpointsTrusted   = "EndpointsTrusted"
)

// use is a set of occasions on which a condition is asked for, and what it counts for.
type use uint

const (
	preflight use = 1 << iota // before anything is changed
	gate                      // before a change is committed
	local                     // of the gate, what is found on the machine alone
	advice                    // told when a change is committed, which it does not hold
	caution                   // told before anything is changed, which it does not hold
	network                   // when the pod subnets have become known
	explained                 // the services' logs say why it is False
	harmless                  // may be False on a node that is healthy, of which it is told
	doctor                    // only Examine tells it, whose caller waits for the evidence

	// Without this part of the evidence the condition is not checked.
	ofMachine
	ofUpkeep
	ofExamined
	ofKubelet
	ofNode
)

type entry struct {
	name  string
	layer Layer
	check func(Evidence) Condition
	use   use
}

// catalogue lists all conditions in the order of the layers, from the machine outwards: what fails
// first in it explains what fails after it.
func catalogue() []entry {
	return []entry{
		{ConfigurationValid, LayerConfiguration, configurationValid, doctor | ofExamined},
		{RootPrivileges, LayerMachine, rootPrivileges, preflight | ofMachine},
		{StateReadable, LayerMachine, stateReadable, doctor | ofExamined},
		{SystemSupported, LayerMachine, systemSupported, preflight},
		{ProcessorSupported, LayerMachine, processorSupported, doctor | ofExamined},
		{ControlGroups, LayerMachine, controlGroups, doctor | ofExamined},
		{KernelModules, LayerMachine, kernelModules, doctor | ofExamined},
		{ToolsInstalled, LayerMachine, toolsInstalled, preflight | ofMachine},
		{FileSystemsWritable, LayerMachine, fileSystemsWritable, ofUpkeep},
		{DiskSpace, LayerMachine, diskSpace, preflight | ofMachine},
		{InodesFree, LayerMachine, inodesFree, ofUpkeep},
		{NodeObserved, LayerMachine, nodeObserved, 0},
		{DiskResponsive, LayerMachine, diskResponsive, harmless | doctor | ofExamined},
		{MemorySize, LayerMachine, memorySize, preflight},
		{SizeAdvised, LayerMachine, sizeAdvised, caution | harmless},
		{ProgramTrusted, LayerMachine, programTrusted, preflight},
		{StoreIntact, LayerMachine, storeIntact, 0},
		{RuntimeOwned, LayerMachine, runtimeOwned, preflight | ofMachine},
		{DirectoriesFree, LayerMachine, directoriesFree, preflight | ofMachine},
		{ReservationsFit, LayerMachine, reservationsFit, preflight},
		{SwapOff, LayerMachine, swapOff, ofUpkeep},
		{HostNameStable, LayerMachine, hostNameStable, ofUpkeep},
		{PortsFree, LayerMachine, portsFree, doctor | ofExamined},
		{FirewallOpen, LayerMachine, firewallOpen, caution | harmless | ofMachine},
		{MetadataGuarded, LayerMachine, metadataGuarded, 0},
		{PackagesInOrder, LayerMachine, packagesInOrder, harmless | doctor},
		{RebootNotPending, LayerMachine, rebootNotPending, harmless | ofUpkeep},
		{DefaultRoute, LayerNetwork, defaultRoute, doctor | ofExamined},
		{NodeAddressPresent, LayerNetwork, nodeAddressPresent, preflight | gate | local},
		{PodSubnetsFit, LayerNetwork, podSubnetsFit, preflight | network | ofMachine},
		{PathMTU, LayerNetwork, pathMTU, doctor},
		{EndpointsReachable, LayerNetwork, endpointsReachable, doctor},
		{ResolverConfigured, LayerDNS, resolverConfigured, doctor | ofExamined},
		{NamesResolved, LayerDNS, namesResolved, doctor},
		{ClockAccurate, LayerClock, clockAccurate, doctor},
		{TimeSynchronized, LayerClock, timeSynchronized, harmless | ofUpkeep},
		{ClusterCAValid, LayerTLS, clusterCAValid, ofUpkeep},
		{EndpointsTrusted, LayerTLS, endpointsTrusted, doctor},
		{PrincipalCertificate, LayerCredential, principalCertificate, ofUpkeep},
		{KubeletCertificate, LayerCredential, kubeletCertificate, ofUpkeep},
		{CredentialValid, LayerCredential, credentialValid, preflight | gate},
		{CertificateIssued, LayerCredential, certificateIssued, 0},
		{ArcConnected, LayerCredential, arcConnected, 0},
		{APIServerReachable, LayerAPIServer, apiServerReachable, preflight | gate},
		{VersionsCompatible, LayerAPIServer, versionsCompatible, preflight | gate},
		{ContainerdRunning, LayerRuntime, containerdRunning, gate | local | explained},
		{KubeletRunning, LayerKubelet, kubeletRunning, gate | local | explained | ofKubelet},
		{KubeletStable, LayerKubelet, kubeletStable, gate | local | explained | ofKubelet},
		{KubeletHealthy, LayerKubelet, kubeletHealthy, gate | local | explained},
		{ServingCertificate, LayerKubelet, servingCertificate, advice},
		{NodeOwned, LayerNode, nodeOwned, preflight},
		{NodeRegistered, LayerNode, nodeRegistered, gate | explained},
		{LeaseRenewed, LayerNode, leaseRenewed, gate},
		{NodeReady, LayerNode, nodeReady, gate | ofNode},
		{RunsAsConfigured, LayerNode, runsAsConfigured, gate | ofNode},
		{PodSubnetsAgree, LayerNode, podSubnetsAgree, gate | ofMachine | ofNode},
		{PodsSynchronized, LayerNode, podsSynchronized, gate},
		{LabelsApplied, LayerNode, labelsApplied, gate | ofNode},
		{TaintsApplied, LayerNode, taintsApplied, advice | ofNode},
		{ServicesReachable, LayerNode, servicesReachable, advice | harmless},
		{ConfigurationAccepted, LayerNode, configurationAccepted, 0},
		{HostAsConfigured, LayerNode, hostAsConfigured, 0},
		{NoChangeWaiting, LayerNode, noChangeWaiting, harmless},
		{ProviderAnswers, LayerNode, providerAnswers, harmless | ofUpkeep},
	}
}

// Preflight returns what must not be False before a machine is changed. What is Unknown may become
// known only with the change, such as an identity that it makes.
func Preflight() []Check { return used(func(u use) bool { return u&preflight != 0 }) }

// Gate returns what must be True before a change is committed.
func Gate() []Check { return used(func(u use) bool { return u&gate != 0 }) }

// GateLocal returns those conditions of the gate that need no cluster.
func GateLocal() []Check { return used(func(u use) bool { return u&local != 0 }) }

// Network returns what must not be False of the pod subnets that a join has learned.
func Network() []Check { return used(func(u use) bool { return u&network != 0 }) }

// Advice returns what is told of a node that has passed the gate: only the cluster's operator can
// cure it.
func Advice() []Check { return used(func(u use) bool { return u&advice != 0 }) }

// Cautions returns what is wrong before a machine is changed and does not keep it from that, in
// full length.
func Cautions(e Evidence) []Condition {
	var cautions []Condition
	for _, known := range catalogue() {
		if c := known.judge(e); known.use&caution != 0 && c.Status == False {
			c.Type = known.name
			cautions = append(cautions, c)
		}
	}
	return cautions
}

// Watch returns all conditions, as status reports them.
func Watch() []Check { return used(func(u use) bool { return u&doctor == 0 }) }

func used(on func(use) bool) []Check {
	var checks []Check
	for _, known := range catalogue() {
		if on(known.use) {
			checks = append(checks, known.evaluate)
		}
	}
	return checks
}

// Explained reports whether the services' logs say why a condition is as it is.
func (c Condition) Explained() bool { return c.Status == False && c.of(explained) }

// Ill reports whether a condition makes its node unhealthy. What is Unknown does not, nor what can
// be False on a node that works, such as one that needs no Services.
func (c Condition) Ill() bool { return c.Status == False && !c.of(harmless) }

func (c Condition) of(u use) bool {
	return slices.ContainsFunc(catalogue(), func(known entry) bool {
		return known.name == c.Type && known.use&u != 0
	})
}

// longestMessage is what the resource provider takes of a message, in bytes.
const longestMessage = 1024

// judge checks a condition whose evidence was gathered.
func (c entry) judge(e Evidence) Condition {
	switch {
	case c.use&ofMachine != 0 && e.Machine == nil, c.use&ofUpkeep != 0 && e.Upkeep == nil,
		c.use&ofExamined != 0 && e.Examined == nil:
		return notAsked()
	case c.use&ofKubelet != 0 && !e.Kubelet.OK():
		return e.Kubelet.missing()
	case c.use&ofNode != 0 && !e.Node.OK():
		return e.Node.missing()
	}
	return c.check(e)
}

func (c entry) evaluate(e Evidence) Condition {
	condition := c.judge(e)
	condition.Type, condition.Message = c.name, Clip(condition.Message, longestMessage)
	return condition
}

// Clip shortens a text to so many bytes, between two characters.
func Clip(text string, most int) string {
	const dots = "..."
	text = strings.ToValidUTF8(text, "")
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}

// holds is a condition that is True.
func holds() Condition { return Condition{Status: True, Reason: "AsExpected"} }

// fails is a condition that is False, with the owner of the cure.
func fails(owner, reason, message string) Condition {
	return Condition{Status: False, Reason: reason, Message: message, Owner: owner}
}

// unknown is a condition about which the evidence does not tell.
func unknown(reason, message string) Condition {
	return Condition{Status: Unknown, Reason: reason, Message: message}
}

// notAsked is a condition whose evidence was not gathered.
func notAsked() Condition { return unknown(notChecked, "this was not checked") }

const (
	notChecked  = "NotChecked"
	notAnswered = "NotAnswered"
)

// NotAnswered reports whether an error was the answer to the question that a condition depends on.
func (c Condition) NotAnswered() bool { return c.Status == Unknown && c.Reason == notAnswered }

// NotChecked tells that the evidence of a condition was not gathered, so that it says nothing.
func (c Condition) NotChecked() bool { return c.Status == Unknown && c.Reason == notChecked }
