package health

import (
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/release"
)

func apiServerReachable(e Evidence) Condition {
	fault, isFault := errors.AsType[*kube.Fault](e.Probe.Err)
	switch {
	case !e.Probe.Asked && (e.Node.OK() || kube.NodeMissing(e.Node.Err)):
		return holds() // it has answered another question
	case !e.Probe.Asked:
		return notAsked()
	case e.Probe.Err == nil, isFault && fault.Layer == kube.LayerAuth:
		return holds()
	case !isFault:
		return unknown("NotTried", oneLine(e.Probe.Err))
	}
	owner, reason := layer(fault)
	message := oneLine(fault)
	if e.Wanted.Located && kube.Rebind(fault) {
		message += "; if the cluster has another address or CA now, this machine needs a new " +
			"configuration (node.kubelet.serverURL, node.kubelet.caCertData)"
	}
	return fails(owner, reason, message)
}

// layer says who cures a broken layer, and the reason's name.
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
	default:
		return OwnerCluster, "NotAnswered"
	}
}

// credentialValid: that a node goes on working proves nothing, since an old token lasts for hours.
// So the credential is proved with one request.
func credentialValid(e Evidence) Condition {
	if e.Credential.OK() {
		return holds()
	}
	fault, isFault := errors.AsType[*kube.Fault](e.Probe.Err)
	switch {
	case errors.Is(e.Credential.Err, kube.ErrUnauthorized):
		return unauthorized(e.Wanted.Entra)
	case isFault && fault.Layer == kube.LayerAuth:
		return fails(issuer(e.Wanted.Entra), "Unauthorized", oneLine(fault))
	case e.Probe.Err != nil && !isFault:
		return fails(issuer(e.Wanted.Entra), "CredentialUnavailable", oneLine(e.Probe.Err)+
			"; run the same command again when that is repaired")
	}
	return e.Credential.missing()
}

func unauthorized(entra bool) Condition {
	if entra {
		return fails(OwnerAzure, "Unauthorized", "the API server does not accept the identity's "+
			"token of Entra ID (401); the cluster must use Entra ID (az aks update --enable-aad) "+
			"and belong to the same tenant; check this machine's clock too (timedatectl)")
	}
	return fails(OwnerCluster, "Unauthorized", "the API server does not accept the node's "+
		"credential (401): it has expired, or is of another cluster; ask the cluster's operator "+
		"for a new bootstrap token, and run `aks-flex-node bootstrap`")
}

// issuer is who cures a credential.
func issuer(entra bool) string {
	if entra {
		return OwnerAzure
	}
	return OwnerCluster
}

func versionsCompatible(e Evidence) Condition {
	if !e.ServerVersion.OK() {
		return e.ServerVersion.missing()
	}
	kubelet, server := e.Wanted.Kubernetes, e.ServerVersion.Value
	versions := fmt.Sprintf("kubelet's version, %s, and the API server's, %s", kubelet, server)
	v, _ := release.ParseServer(server)
	switch release.SkewOf(kubelet, server) {
	case release.Unreadable:
		return unknown("VersionUnknown", versions+", cannot be compared")
	case release.Newer:
		return fails(OwnerConfiguration, "KubeletNewer", fmt.Sprintf("%s, do not go together: "+
			"kubelet may not be newer; set kubernetes.version to 1.%d.z", versions, v.Minor))
	case release.TooOld:
		return fails(OwnerConfiguration, "KubeletTooOld", fmt.Sprintf("%s, do not go together: "+
			"kubelet may be %d minor versions older; set kubernetes.version to 1.%d.z",
			versions, release.MaxSkew, v.Minor))
	}
	return holds()
}

// certificateIssued: a kubelet whose credential is accepted has its certificate; else its latest
// request tells what it waits for.
func certificateIssued(e Evidence) Condition {
	if e.Credential.OK() && e.Credential.Value == "system:node:"+e.Wanted.Node {
		return holds()
	}
	if !e.CSRs.OK() {
		return e.CSRs.missing()
	}
	if len(e.CSRs.Value) == 0 {
		return unknown("NotRequested", "kubelet has not asked for a certificate")
	}
	last := e.CSRs.Value[len(e.CSRs.Value)-1]
	request := "kubelet's certificate request " + last.Name
	switch last.State {
	case "pending":
		return fails(OwnerCluster, "Pending", request+" is pending: nobody has approved it; the "+
			"cluster's operator can run `kubectl certificate approve "+last.Name+"`; so that it "+
			"happens by itself, apply packaging/kubernetes/rbac.yaml")
	case "denied":
		return fails(OwnerCluster, "Denied", request+" was denied: "+last.Reason+"; ask the "+
			"cluster's operator why")
	case "failed":
		return fails(OwnerCluster, "Failed", request+" has failed: "+last.Reason+"; ask the "+
			"cluster's operator why")
	case "approved":
		return fails(OwnerCluster, "NotSigned", request+" is approved, but no certificate was "+
			"issued; check kube-controller-manager's signer")
	}
	return holds()
}

// Works reports whether a version of kubelet works with one of the API server.
func Works(kubelet, server string) bool { return release.SkewOf(kubelet, server) == release.Works }
