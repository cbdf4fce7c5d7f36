package config

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parseBefore parses a document for a machine that has a configuration applied and was renamed.
func parseBefore(t *testing.T, d document, before Config) Config {
	t.Helper()
	loaded, err := Parse(d.bytes(t), Host{HostName: "Renamed", Arch: "amd64", Before: &before})
	c := loaded.Config
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestOpenSettingsRemain holds that what a document leaves open is what it was resolved to before.
func TestOpenSettingsRemain(t *testing.T) {
	const versions = `{
		"kubernetes": {"version": "1.32.1"}, "containerd": {"version": "2.1.9"},
		"runc": {"version": "1.2.9"}, "cni": {"version": "1.6.1"}, "npd": {"version": "0.8.1"}
	}`
	open := tokenDocument(t)
	before, _ := parseOK(t, open.with(t, versions))
	if diff := cmp.Diff(before, parseBefore(t, open, before)); diff != "" {
		t.Errorf("an open document: %s", diff)
	}
	c := parseBefore(t, open.with(t, `{
		"kubernetes": {"version": "1.33.0"}, "npd": {"version": ""}, "agent": {"nodeName": "other"}
	}`), before)
	got := []string{c.Kubernetes.Version, c.Containerd.Version, c.NPD.Version, c.Agent.NodeName}
	if diff := cmp.Diff([]string{"1.33.0", "2.1.9", "0.8.1", "other"}, got); diff != "" {
		t.Errorf("what is asked for is not what is used: %s", diff)
	}
	// An applied configuration whose version of Kubernetes is open leaves it open.
	before, _ = parseOK(t, open)
	if c := parseBefore(t, open, before); c.Kubernetes.Version != "" || c.CNI.Version == "" {
		t.Errorf("Kubernetes %q, CNI plugins %q", c.Kubernetes.Version, c.CNI.Version)
	}
}

// TestCredentialRemains holds that kubelet's credential and the roles for it are the applied ones
// as long as the node authenticates in the same way.
func TestCredentialRemains(t *testing.T) {
	const principal = `"servicePrincipal": {"clientId": "` + testTenant + `", "clientSecret": "a"}`
	const token = `, "kubeletCredential": "token"`
	const certificate = `, "kubeletCredential": "certificate"`
	for name, test := range map[string]struct{ before, members, credential, roles string }{
		"Arc": {"", `"arc": {}`, CredentialCertificate, ""},
		"Arc whose roles are assigned": {"", `"arc": {"autoRoleAssignment": true}`, CredentialToken,
			RoleReader + "," + RoleRBACClusterAdmin + "," + RoleClusterAdmin},
		"Arc whose roles are assigned, with a certificate": {"", `"arc": {"autoRoleAssignment": true}` +
			certificate, CredentialCertificate, ""},
		"Arc with a token": {"", `"arc": {}` + token, CredentialToken,
			RoleReader + "," + RoleRBACClusterAdmin + "," + RoleClusterAdmin},
		"Arc onboarded by a principal": {"", principal + `, "arc": {}`, CredentialCertificate, ""},
		"a principal":                  {"", principal, CredentialCertificate, ""},
		"a managed identity":           {"", `"managedIdentity": {}`, CredentialCertificate, ""},
		"Arc that had a token": {`"arc": {}` + token, `"arc": {}`, CredentialToken,
			RoleReader + "," + RoleRBACClusterAdmin + "," + RoleClusterAdmin},
		"Arc whose roles were assigned": {`"arc": {"autoRoleAssignment": true}`, `"arc": {}`,
			CredentialToken, RoleReader + "," + RoleRBACClusterAdmin + "," + RoleClusterAdmin},
		"Arc that had a role": {`"arc": {"roles": ["Reader"]}` + token, `"arc": {}`,
			CredentialToken, RoleReader},
		"Arc that changes": {`"arc": {}` + token, `"arc": {}` + certificate,
			CredentialCertificate, ""},
		"a principal that had a certificate": {principal + certificate, principal,
			CredentialCertificate, ""},
		"from a principal to Arc": {principal + token, `"arc": {}`, CredentialCertificate, ""},
		"from Arc to a principal": {`"arc": {}`, principal, CredentialCertificate, ""},
	} {
		var before Config
		if test.before != "" {
			before, _ = parseOK(t, azureDocument(t, test.before))
		}
		c := parseBefore(t, azureDocument(t, test.members), before)
		var roles string
		if arc := c.Azure.Arc; arc != nil {
			roles = strings.Join(arc.Roles, ",")
			if *arc.AutoRoleAssignment != strings.Contains(test.members, "autoRoleAssignment") {
				t.Errorf("%s: autoRoleAssignment is %t", name, *arc.AutoRoleAssignment)
			}
		}
		if c.Azure.KubeletCredential != test.credential || roles != test.roles {
			t.Errorf("%s: %s with %q, want %s with %q", name, c.Azure.KubeletCredential, roles,
				test.credential, test.roles)
		}
	}
}

// Networks that are left open keep their previous values; an empty list is none, also when it is
// kept.
func TestDirectNetworksRemain(t *testing.T) {
	document := func(cni string) document {
		return tokenDocument(t).with(t, `{"cni": `+cni+`}`)
	}
	const given, open, none = `{"nonMasqueradeCIDRs": ["10.0.0.0/8"]}`, `{}`,
		`{"nonMasqueradeCIDRs": []}`
	for _, tt := range []struct {
		before, now string
		want        []string
	}{
		{given, open, []string{"10.0.0.0/8"}},
		{given, none, []string{}},
		{none, open, []string{}},
		{open, open, nil},
		{none, given, []string{"10.0.0.0/8"}},
	} {
		first, _ := parseOK(t, document(tt.before))
		kept := first.Reveal()
		before, _ := parseOK(t, parseJSON(t, string(kept)))
		got := parseBefore(t, document(tt.now), before).CNI.NonMasqueradeCIDRs
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s, then %s (-want +got):\n%s", tt.before, tt.now, diff)
		}
	}
}

func TestMachineNameRemains(t *testing.T) {
	before, _ := parseOK(t, azureDocument(t, `"arc": {}`))
	c := parseBefore(t, azureDocument(t, `"arc": {}`), before)
	if c.Agent.NodeName != "edge-01" || c.Azure.Arc.MachineName != "Edge-01" {
		t.Errorf("a renamed host is Node %s, machine %s", c.Agent.NodeName, c.Azure.Arc.MachineName)
	}
	c = parseBefore(t, azureDocument(t, `"arc": {"machineName": "m"}`), before)
	if c.Azure.Arc.MachineName != "m" {
		t.Errorf("the machine is %s", c.Azure.Arc.MachineName)
	}
}

// TestLoadKeepsTheNodeName holds that Load passes on what is applied on this machine.
func TestLoadKeepsTheNodeName(t *testing.T) {
	file := safeDir(t) + "/config.json"
	if err := os.WriteFile(file, tokenDocument(t).bytes(t), 0o600); err != nil {
		t.Fatal(err)
	}
	before := Config{Agent: Agent{NodeName: "joined-as-this"}}
	got, err := Load(file, &before)
	if err != nil || got.Config.Agent.NodeName != "joined-as-this" {
		t.Errorf("the Node is %q (%v)", got.Config.Agent.NodeName, err)
	}
}
