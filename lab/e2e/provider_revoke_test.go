package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
)

// stays is a policy that refuses one kubelet the deletion of its Node, as a cluster without
// rbac-leave.yaml refuses it to all of them.
const stays = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy,
  metadata: {name: NODE-stays}, spec: {failurePolicy: Fail,
    matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE],
      resources: [nodes]}]},
    validations: [{expression: "request.userInfo.username != 'system:node:NODE'",
      message: "NODE may not delete itself", reason: Forbidden}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding,
  metadata: {name: NODE-stays}, spec: {policyName: NODE-stays, validationActions: [Deny]}}
`

// mayNotDelete refuses a node's kubelet the deletion of its Node until the end of the test.
func mayNotDelete(t *testing.T, node string) {
	t.Helper()
	policy := strings.ReplaceAll(stays, "NODE", node)
	if _, err := bench.Kubectl(t.Context(), policy, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := bench.Kubectl(context.Background(), policy, "delete", "-f", "-")
		if err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the refusal of the deletion", func() bool {
		_, err := bench.Kubectl(t.Context(), "", "delete", "node", node, "--dry-run=server",
			"--as=system:node:"+node, "--as-group=system:nodes", "--as-group=system:authenticated")
		return err != nil && strings.Contains(err.Error(), "may not delete itself")
	})
}

// revoked deletes a node whose machine does not leave. Within a minute the machine can no longer
// write or get another certificate; its successor's can.
func revoked(t *testing.T) {
	const name = "rp-stolen"
	t.Cleanup(func() {
		_, _ = bench.Kubectl(context.Background(), "", "delete", "node", name, "--ignore-not-found")
	})
	stolen := certified(t, tokenOf(t, name), name)
	defer stolen.CloseIdleConnections()
	status, text := write(t, stolen, "", http.MethodPost, "/api/v1/nodes", desired{
		"apiVersion": "v1", "kind": "Node", "metadata": desired{"name": name,
			"labels": desired{"kubernetes.azure.com/managed": "false"}}}) // as the agent's kubelets set it
	if status != http.StatusCreated {
		t.Fatalf("a Node is not created: %d %s", status, text)
	}
	if status, text := touch(t, stolen, name); status != http.StatusOK {
		t.Fatalf("a node does not write: %d %s", status, text)
	}
	rp(t, 200, http.MethodDelete, rpNode(name)+"?revokeNow=true", nil)
	within(t, time.Minute, "the refusal of a deleted node's writes", func() bool {
		status, text := touch(t, stolen, name)
		return status == http.StatusForbidden && strings.Contains(text, "was revoked")
	})
	if _, _, status := fileRequest(t, stolen, "", name); status != http.StatusForbidden {
		t.Errorf("the deleted node asks for a certificate: %d", status)
	}
	status, text = write(t, stolen, "", http.MethodPost,
		"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", desired{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
			"metadata": desired{"name": name, "namespace": "kube-node-lease"}})
	if status != http.StatusForbidden {
		t.Errorf("the deleted node writes a lease: %d %s", status, text)
	}

	rp(t, 409, http.MethodPut, rpNode(name), desired{"properties": desired{}})
	successor := certified(t, tokenOf(t, name), name)
	defer successor.CloseIdleConnections()
	within(t, time.Minute, "a write of the successor", func() bool {
		status, _ := touch(t, successor, name)
		return status == http.StatusOK
	})
	request, key, status := fileRequest(t, successor, "", name)
	if status != http.StatusCreated {
		t.Fatalf("the successor asks for a certificate: %d", status)
	}
	renewed := clientOf(t, key, request)
	defer renewed.CloseIdleConnections()
	reason, err := bench.Kubectl(t.Context(), "", "get", "csr", request, "-o",
		"jsonpath={.status.conditions[*].reason}")
	if err != nil || reason != "FlexNodeApproved" {
		t.Errorf("the renewal was approved as %q: %v", reason, err)
	}
	within(t, time.Minute, "a write with the renewed certificate", func() bool {
		status, _ := touch(t, renewed, name)
		return status == http.StatusOK
	})
	if status, text := touch(t, stolen, name); status != http.StatusForbidden {
		t.Errorf("the deleted node writes beside its successor: %d %s", status, text)
	}
	rp(t, 200, http.MethodDelete, rpNode(name)+"?revokeNow=true", nil)
}

// tokenOf creates a node and returns its bootstrap token.
func tokenOf(t *testing.T, name string) string {
	t.Helper()
	answer := rp(t, 201, http.MethodPut, rpNode(name)+"?configUrl=true&acceptOldCertificate=true",
		desired{"properties": desired{"versions": lab.Newest.Desired()}})
	url, _ := properties(answer)["configUrl"].(string)
	status, bundle := get(t, url)
	if status != 200 {
		t.Fatalf("the configuration URL %q: %d %s", url, status, bundle)
	}
	return between(t, bundle, `"token": "`, `"`)
}

// certified joins with a bootstrap token and returns a client with the node's certificate.
func certified(t *testing.T, token, name string) *http.Client {
	t.Helper()
	client, err := bench.HTTPClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	request, key, status := fileRequest(t, client, token, name)
	if status != http.StatusCreated {
		t.Fatalf("the certificate request: %d", status)
	}
	return clientOf(t, key, request)
}

// clientOf waits for a request's certificate and returns a client with it.
func clientOf(t *testing.T, key *ecdsa.PrivateKey, request string) *http.Client {
	t.Helper()
	var chain []byte
	eventually(t, "the certificate of "+request, func() bool {
		chain = requestOf(t, request).Status.Certificate
		return len(chain) > 0
	})
	block, _ := pem.Decode(chain)
	client, err := bench.HTTPClient()
	if err != nil {
		t.Fatal(err)
	}
	transport := client.Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = []tls.Certificate{
		{Certificate: [][]byte{block.Bytes}, PrivateKey: key},
	}
	client.Transport = transport
	return client
}

// touch writes to the Node of a client's certificate.
func touch(t *testing.T, client *http.Client, name string) (status int, text string) {
	t.Helper()
	return write(t, client, "", http.MethodPatch, "/api/v1/nodes/"+name, desired{
		"metadata": desired{"annotations": desired{"test": time.Now().String()}}})
}
