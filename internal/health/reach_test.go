package health

import (
	"crypto/x509"
	"errors"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/kube"
)

// probe is good evidence with another outcome of the probe.
func probe(err error) Evidence { return with(func(e *Evidence) { e.Probe = Tried(err) }) }

func broken(l kube.Layer) Evidence {
	return probe(&kube.Fault{Layer: l, Message: "broken", Remedy: "mend it"})
}

func TestAPIServerReachable(t *testing.T) {
	const said = "broken; mend it"
	clock := &kube.Fault{
		Layer: kube.LayerTLS, Message: "not valid",
		Err: x509.CertificateInvalidError{Reason: x509.Expired},
	}
	check(t, APIServerReachable, []expect{
		blank("NotChecked"),
		{"DNS", broken(kube.LayerDNS), False, "NameNotResolved", OwnerNetwork, "DNS: " + said},
		{"TCP", broken(kube.LayerTCP), False, "NotConnected", OwnerNetwork, said},
		{"proxy", broken(kube.LayerProxy), False, "ProxyRefused", OwnerNetwork, said},
		{"TLS", broken(kube.LayerTLS), False, "NotTrusted", OwnerConfiguration, said},
		{"the clock", probe(clock), False, "ClockOrCertificate", OwnerMachine, "not valid"},
		{"HTTP", broken(kube.LayerHTTP), False, "NotAnswered", OwnerCluster, said},
		{"only the credential is wrong", broken(kube.LayerAuth), True, "", "", ""},
		{"no credential to try", probe(errors.New("Entra ID is ill")), Unknown, "NotTried", "", "ill"},
		{"it told of the Node", Evidence{Node: good().Node}, True, "", "", ""},
		{"it told of no Node", Evidence{Node: Answered(kube.Node{}, notFound())}, True, "", "", ""},
		{"it told nothing", Evidence{Node: failed[kube.Node]()}, Unknown, "NotChecked", "", ""},
	})
}

// B2: a wrong credential was committed because the old token had not ended yet.
func TestCredentialValid(t *testing.T) {
	refused := func(entra bool) Evidence {
		return with(func(e *Evidence) {
			e.Credential = Answered("", kube.ErrUnauthorized)
			if entra {
				e.Wanted.Azure.Arc, e.Wanted.Azure.KubeletCredential = &config.Arc{}, config.CredentialToken
			}
		})
	}
	without := func(err error) Evidence {
		return with(func(e *Evidence) { e.Credential, e.Probe = Answer[string]{}, Tried(err) })
	}
	fault := &kube.Fault{Layer: kube.LayerAuth, Message: "refused (401)"}
	check(t, CredentialValid, []expect{
		blank("NotChecked"),
		{"forbidden is recognised", with(func(e *Evidence) { e.Credential.Value = "" }), True,
			"", "", ""},
		{"a certificate", refused(false), False, "Unauthorized", OwnerCluster, "regenerateToken"},
		{"Entra ID", refused(true), False, "Unauthorized", OwnerAzure, "--enable-aad"},
		{"the probe says it", without(fault), False, "Unauthorized", OwnerCluster, "refused (401)"},
		{"no token", without(errors.New("cannot get a token: Entra ID is ill")), False,
			"CredentialUnavailable", OwnerAzure, "Entra ID is ill"},
		{"not tried", without(nil), Unknown, "NotChecked", "", ""},
		{"no answer", with(func(e *Evidence) { e.Credential = failed[string]() }), Unknown,
			"NotAnswered", "", "etcd is down"},
	})
}

// M13: the default kubelet was newer than the API server, and no message said so.
func TestVersionsCompatible(t *testing.T) {
	versions := func(kubelet, server string) Evidence {
		return with(func(e *Evidence) {
			e.Wanted.Kubernetes.Version, e.ServerVersion = kubelet, Answered(server, nil)
		})
	}
	const owner = OwnerConfiguration
	check(t, VersionsCompatible, []expect{
		blank("NotChecked"),
		{"the same", versions("1.34.9", "1.34.1"), True, "", "", ""},
		{"newer", versions("1.34.4", "1.33.7"), False, "KubeletNewer", owner, "1.33.z"},
		{"three older", versions("1.32.0", "1.35.0"), True, "", "", ""},
		{"four older", versions("v1.31.9", "1.35.0"), False, "KubeletTooOld", owner, "1.35.z"},
		{"unreadable", versions("1.34.4", "latest"), Unknown, "VersionUnknown", "", "latest"},
		{"2.0", versions("2.0.0", "1.34.0"), Unknown, "VersionUnknown", "", "2.0.0"},
	})
}

func TestCertificateIssued(t *testing.T) {
	csrs := func(list ...kube.CSR) Evidence {
		return with(func(e *Evidence) {
			e.Credential, e.CSRs = Answer[string]{}, Answered(list, nil)
		})
	}
	one := func(state string) Evidence {
		return csrs(kube.CSR{Name: "csr-1", State: state, Reason: "not on my watch"})
	}
	rotating := with(func(e *Evidence) { e.CSRs.Value[0].State = "pending" })
	const owner = OwnerCluster
	check(t, CertificateIssued, []expect{
		blank("NotChecked"),
		{"issued", one("issued"), True, "", "", ""},
		{"none", csrs(), Unknown, "NotRequested", "", ""},
		{"pending", one("pending"), False, "Pending", owner, "kubectl certificate approve csr-1"},
		{"who approves", one("pending"), False, "Pending", owner, "flexnode-rp approves the requests"},
		{"denied", one("denied"), False, "Denied", owner, "was denied: not on my watch"},
		{"what to do", one("denied"), False, "Denied", owner, "regenerateToken"},
		{"without a token", one("denied"), False, "Denied", owner, "if it joined with one"},
		{"failed", one("failed"), False, "Failed", owner, "has failed: not on my watch"},
		{"no signer", one("approved"), False, "NotSigned", owner, "signer"},
		{"the latest counts", csrs(kube.CSR{State: "denied"}, kube.CSR{State: "issued"}), True,
			"", "", ""},
		{"the next is pending, and this one works", rotating, True, "", "", ""},
	})
}
