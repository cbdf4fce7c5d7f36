package health

import (
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/release"
)

func apiServerReachable(e Evidence) Condition {
	fault, isFault := errors.AsType[*kube.Fault](e.Probe.Err)
	switch {
	case !e.Probe.Asked && (e.Node.OK() || kube.NodeMissing(e.Node.Err)):
		return holds() // it has answered another request
	case !e.Probe.Asked:
		return notAsked()
	case e.Probe.Err == nil, isFault && fault.Layer == kube.LayerAuth:
		return holds()
	case !isFault:
		return unknown("NotTried", oneLine(e.Probe.Err))
	}
	owner, reason := layer(fault)
	message := oneLine(fault)
	if e.Wanted.Located() && kube.Rebind(fault) {
		message += "; if the cluster has another address or CA now, this machine needs a new " +
			"configuration (node.kubelet.serverURL, node.kubelet.caCertData)"
	}
	return fails(owner, reason, message)
}

func layer(fault *kube.Fault) (owner, reason string) {
	invalid, ok := errors.AsType[x509.CertificateInvalidError](fault)
	if ok && invalid.Reason == x509.Expired {
		return OwnerMachine, "ClockOrCertificate"
	}
	switch fault.Layer {
	case kube.LayerDNS:
		return OwnerNetwork, "NameNotResolved"
	case kube.LayerTCP:
		return OwnerNetwork, "NotConnected"
	case kube.LayerProxy:
		return OwnerNetwork, "ProxyRefused"
	case kube.LayerTLS:
		return OwnerConfiguration, "NotTrusted"
	}
	return OwnerCluster, "NotAnswered"
}

// credentialValid checks the credential with one request, as an old token lasts for hours.
func credentialValid(e Evidence) Condition {
	fault, isFault := errors.AsType[*kube.Fault](e.Probe.Err)
	refused, issuer := errors.Is(e.Credential.Err, kube.ErrUnauthorized), OwnerCluster
	if e.Wanted.Azure.ShowsToken() {
		issuer = OwnerAzure
	}
	switch {
	case e.Credential.OK():
		return holds()
	case refused && issuer == OwnerAzure:
		return fails(issuer, "Unauthorized", "the API server does not accept the identity's "+
			"token of Entra ID (401); the cluster must use Entra ID (az aks update --enable-aad) "+
			"and belong to the same tenant; check this machine's clock too (timedatectl)")
	case refused:
		return fails(issuer, "Unauthorized", "the API server does not accept the node's "+
			"credential (401): it was already used, has expired, or belongs to another cluster", joinAgain)
	case isFault && fault.Layer == kube.LayerAuth:
		return fails(issuer, "Unauthorized", oneLine(fault))
	case e.Probe.Err != nil && !isFault:
		return fails(OwnerAzure, "CredentialUnavailable", oneLine(e.Probe.Err))
	}
	return e.Credential.missing()
}

const joinAgain cure = "if the node was created as a flexNodeConfig, ask the operator to run " +
	"regenerateToken, and join with the new URL: `aks-flex-node agent --config-url-file -`; " +
	"otherwise run `aks-flex-node bootstrap`, with a new bootstrap token if it joined with one"

func versionsCompatible(e Evidence) Condition {
	kubelet, server := e.Wanted.Kubernetes.Version, e.ServerVersion.Value
	versions := fmt.Sprintf("kubelet's version, %s, and the API server's, %s", kubelet, server)
	v, _ := release.ParseServer(server)
	switch release.SkewOf(kubelet, server) {
	case release.Unreadable:
		return unknown("VersionUnknown", versions+", cannot be compared")
	case release.Newer:
		return fails(OwnerConfiguration, "KubeletNewer", fmt.Sprintf("%s, are not compatible: kubelet "+
			"must not be newer; set kubernetes.version to 1.%d.z", versions, v.Minor))
	case release.TooOld:
		return fails(OwnerConfiguration, "KubeletTooOld", fmt.Sprintf("%s, are not compatible: "+
			"kubelet may be at most %d minor versions older; set kubernetes.version to 1.%d.z",
			versions, release.MaxSkew, v.Minor))
	}
	return holds()
}

func clusterUpgradable(e Evidence) Condition {
	kubelet, server := e.Wanted.Kubernetes.Version, e.ServerVersion.Value
	v, ok := release.ParseServer(server)
	if !ok {
		return unknown("VersionUnknown", "the API server's version, "+server+", cannot be read")
	}
	works := release.SkewOf(kubelet, server) == release.Works
	next := release.SkewOf(kubelet, fmt.Sprintf("%d.%d.0", v.Major, v.Minor+1))
	return when(works && next == release.TooOld, OwnerConfiguration, "KubeletBehind",
		fmt.Sprintf("kubelet %s is %d minor versions behind the API server, %s, which is the maximum: "+
			"after the cluster's next upgrade they are not compatible; set kubernetes.version to 1.%d.z "+
			"before that", kubelet, release.MaxSkew, server, v.Minor))
}

func certificateIssued(e Evidence) Condition {
	switch {
	case e.Credential.OK() && e.Credential.Value == "system:node:"+e.Wanted.Agent.NodeName:
		return holds()
	case !e.CSRs.OK():
		return e.CSRs.missing()
	case len(e.CSRs.Value) == 0:
		return unknown("NotRequested", "kubelet has not asked for a certificate")
	}
	last := e.CSRs.Value[len(e.CSRs.Value)-1]
	request := "kubelet's certificate request " + last.Name
	switch last.State {
	case "pending":
		return fails(OwnerCluster, "Pending", request+" is pending: it has not been approved yet").run(
			"the cluster's operator can run `kubectl certificate approve %s`; flexnode-rp approves the "+
				"requests of its nodes; without a provider, manifests/rbac.yaml does", last.Name)
	case "denied":
		return fails(OwnerCluster, "Denied", request+" was denied: "+last.Reason+"; ask the "+
			"cluster's operator why", joinAgain)
	case "failed":
		return fails(OwnerCluster, "Failed", request+" has failed: "+last.Reason+"; ask the "+
			"cluster's operator why")
	case "approved":
		return fails(OwnerCluster, "NotSigned", request+" is approved, but no certificate was "+
			"issued; check kube-controller-manager's signer")
	}
	return holds()
}

// The reasons why Services cannot be reached that may pass with time.
const proxyMissing, notReachable = "ProxyMissing", "NotReachable"

const servicesGuide = "see docs/how-to/prepare-a-cluster.md"

// servicesReachable checks Services: without them pods resolve no names on a Node that is Ready.
func servicesReachable(e Evidence) Condition {
	var silent []string
	for _, c := range e.Services.Value.Tried {
		if c.Err != nil {
			silent = append(silent, fmt.Sprintf("%s (%s: %s)", c.Service, c.Address, oneLine(c.Err)))
		}
	}
	dns, told := e.Services.Value.DNS, e.Wanted.Node.Kubelet.DNSServiceIP
	switch {
	case len(silent) > 0 && e.Pods.OK() && !slices.ContainsFunc(e.Pods.Value, proxies):
		return fails(OwnerCluster, proxyMissing, "Services cannot be reached and names cannot be "+
			"resolved: neither kube-proxy nor a replacement runs on this node; the cluster's operator "+
			"can run `flexnode-rp cluster prepare`; "+servicesGuide)
	case len(silent) > 0:
		return fails(OwnerNetwork, notReachable, "this machine cannot reach Services: "+
			Clip(strings.Join(silent, "; "), longestLine)+"; if kube-proxy has just started, wait a "+
			"moment; otherwise check its log, whether a firewall of this machine drops forwarded "+
			"packets, and whether the network has routes to the pods behind the Service; "+servicesGuide,
			"if nftables was restarted or reloaded, kube-proxy's rules are gone: `pkill -x kube-proxy`")
	case dns != "" && told != "" && dns != told &&
		!strings.HasPrefix(told, "169.254."): // a cache on each node (NodeLocal DNSCache)
		return fails(OwnerConfiguration, "DNSAddressDiffers", "pods ask "+told+
			" for names, and the cluster's DNS Service is "+dns+": set node.kubelet.dnsServiceIP")
	}
	return holds()
}

// The time that a node waits, after it became Ready, for components that start by themselves: a
// kube-proxy that was scheduled to it first pulls its image.
const patience, proxyPatience = 10 * time.Second, 45 * time.Second

// Patience returns the time that a joined node waits for Services and a serving certificate.
func Patience(e Evidence) time.Duration {
	switch c := servicesReachable(e); {
	case c.Status == False && c.Reason == notReachable:
		return proxyPatience
	case c.Status == False && c.Reason == proxyMissing, servingCertificate(e).Status == False:
		return patience
	}
	return 0
}

// proxyPods matches the names of pods that make Services reachable on their node.
var proxyPods = regexp.MustCompile(
	"^(aks-flex-node-)?kube-proxy|^cilium|^kube-router|^calico-node|^antrea")

func proxies(pod corev1.Pod) bool { return proxyPods.MatchString(pod.Name) }

// Arc describes the machine's registration with Azure Arc, as known to its Arc agent.
type Arc struct {
	Machine  string // the ARM id of its registration, "" if it has none
	Recorded string // the ARM id under which the node was enrolled
	Agent    string // the agent's term for its connection
	Refused  bool   // Azure no longer gives the machine's identity a token
	Lost     bool   // only a new enrolment helps
}

// arcConnected checks that Azure still accepts the Arc machine, and that it still has its roles.
func arcConnected(e Evidence) Condition {
	const mend cure = "`aks-flex-node bootstrap` connects it again"
	switch a := e.Arc.Value; {
	case e.Wanted.Azure.AuthMode() != config.AuthArc:
		return holds()
	case !e.Arc.Asked:
		return notAsked()
	case e.Arc.Err != nil:
		return fails(OwnerMachine, "AgentSilent", "the Arc agent does not report its status: "+
			oneLine(e.Arc.Err)+"; check azcmagent show and systemctl status himdsd")
	case a.Machine == "":
		return fails(OwnerAzure, "NotRegistered", "this machine is no longer registered with Azure "+
			"Arc", mend)
	case a.Lost && a.Refused:
		return fails(OwnerAzure, "NotAccepted", "Azure Arc no longer accepts this machine: "+
			a.Recorded+" was deleted, or its identity has expired", mend)
	case a.Lost:
		return fails(OwnerAzure, "AnotherMachine", fmt.Sprintf("this machine is registered with Azure "+
			"Arc as %s, but was enrolled as %s", a.Machine, a.Recorded))
	case a.Agent != "Connected":
		return fails(OwnerNetwork, "NotConnected", "the Arc agent does not reach Azure ("+a.Agent+
			"); check its network and proxy (azcmagent check), then systemctl restart himdsd")
	case e.Authorised.OK() && !e.Authorised.Value:
		return fails(OwnerAzure, "RoleMissing", "the cluster no longer authorises the identity of the "+
			"Arc machine, which needs "+e.Wanted.ArcRole, "`aks-flex-node bootstrap` assigns its "+
			"roles again where azure.arc.autoRoleAssignment is true")
	}
	return holds()
}

func (e Evidence) endpoints() []Endpoint {
	return slices.DeleteFunc(slices.Clone(e.Examined.Endpoints.Value), func(p Endpoint) bool {
		return !p.Needed
	})
}

// broken fails if a server needed now cannot be reached because of a fault in one of the layers.
// The API server has a condition of its own, but for its name.
func (e Evidence) broken(reason string, advice cure, layers ...kube.Layer) Condition {
	var found, remedies []string
	for _, p := range e.endpoints() {
		fault, ok := errors.AsType[*kube.Fault](p.Err)
		if !ok || !slices.Contains(layers, fault.Layer) || p.Cluster && fault.Layer != kube.LayerDNS {
			continue
		}
		bare := *fault
		bare.Remedy = ""
		found = append(found, fmt.Sprintf("%s (%s): %s", p.URL, p.Purpose, oneLine(&bare)))
		if fault.Remedy != "" && !slices.Contains(remedies, fault.Remedy) {
			remedies = append(remedies, fault.Remedy)
		}
	}
	what := strings.Join(append(found, remedies...), "; ")
	return when(len(found) > 0, OwnerNetwork, reason, what, advice)
}

func namesResolved(e Evidence) Condition {
	return e.broken("NotResolved", "query the machine's resolver with `resolvectl query NAME`; the "+
		"name of a private cluster resolves only with its private DNS zone", kube.LayerDNS)
}

func endpointsReachable(e Evidence) Condition {
	return e.broken("NotConnected", "`aks-flex-node endpoints` lists every server that this machine "+
		"needs", kube.LayerTCP, kube.LayerProxy)
}

func endpointsTrusted(e Evidence) Condition {
	return e.broken("NotTrusted", "a proxy that inspects TLS presents its own certificate: exempt "+
		"these hosts, or add its CA to the system's (`"+e.distro().Trust+"`)", kube.LayerTLS)
}

// pathMTU checks the path MTU: if larger packets are dropped, connections open and then hang.
func pathMTU(e Evidence) Condition {
	for _, p := range e.endpoints() {
		if p.SmallOnly {
			return fails(OwnerNetwork, "LargePacketsLost", p.URL+" ("+p.Purpose+") answers only small "+
				"packets: larger ones are dropped on the path, for example by a VPN with a smaller "+
				"MTU", "lower the MTU of the network interface (`ip link set dev NAME mtu 1400`), or allow "+
				"ICMP \"fragmentation needed\" in the network")
		}
	}
	return holds()
}

// maxAhead is the max difference of two clocks. Entra ID and certificates tolerate five minutes.
const maxAhead = time.Minute

// clockAccurate compares the clock with servers'. If those differ, this machine's is not wrong.
func clockAccurate(e Evidence) Condition {
	var differ []string
	dated := 0
	for _, p := range e.endpoints() {
		if p.Ahead == nil {
			continue
		}
		dated++
		if d := p.Ahead.Abs(); d > maxAhead {
			which := "behind"
			if *p.Ahead < 0 {
				which = "ahead of"
			}
			differ = append(differ, fmt.Sprintf("%s %s that of %s", d, which, p.URL))
		}
	}
	switch {
	case dated == 0:
		return unknown("NoServerTime", "no server has sent its time")
	case len(differ) == 0:
		return holds()
	case len(differ) < dated:
		return fails(OwnerCluster, "ServersDiffer", "the clocks of servers differ: this machine's is "+
			strings.Join(differ, ", and ")+", and right by the others; contact the operator of that server")
	}
	return fails(OwnerMachine, "ClockWrong", "the clock of this machine is "+
		strings.Join(differ, ", and "), "certificates and tokens depend on it: set it, and keep it "+
		"with NTP (`timedatectl set-ntp true`, `timedatectl timesync-status`)")
}
