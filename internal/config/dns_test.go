package config

import (
	"strings"
	"testing"
)

// The address of the DNS service is not guessed; a node keeps the one that it has joined with.
func TestDNSAddressIsOpen(t *testing.T) {
	fresh, _ := parseOK(t, azureDocument(t, `"arc": {}`))
	if is := fresh.Node.Kubelet.DNSServiceIP; is != "" {
		t.Errorf("it is guessed to be %s", is)
	}
	joined, err := fresh.WithDNS("10.96.0.10")
	if err != nil || joined.Node.Kubelet.DNSServiceIP != "10.96.0.10" {
		t.Fatalf("%+v, %v", joined.Node.Kubelet, err)
	}
	if kept := parseBefore(t, azureDocument(t, `"arc": {}`), joined); kept.Node.Kubelet.DNSServiceIP !=
		"10.96.0.10" {
		t.Errorf("the node has %q now", kept.Node.Kubelet.DNSServiceIP)
	}
	fresh.CNI.PodCIDR = "10.96.7.0/24"
	for address, want := range map[string]string{
		"None": "node.kubelet.dnsServiceIP", "10.96.0.10": "cni.podCIDR", "fd00::10": "family",
	} {
		if _, err := fresh.WithDNS(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v", address, err)
		}
	}
}
