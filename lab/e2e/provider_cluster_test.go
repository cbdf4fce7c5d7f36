package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/manifests"
)

// answer is the response to a request.
type answer struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

// call sends a request of a principal to Resource Manager (lab.AzureURL) or directly to the
// provider; headers are alternating names and values. path may be a whole URL.
func call(
	t *testing.T, who lab.Principal, base, method, path string, body any, headers ...string,
) answer {
	t.Helper()
	if strings.HasPrefix(path, lab.AzureURL+"/") {
		base = lab.AzureURL
	}
	token, err := bench.TokenAt(t.Context(), who, base)
	if err != nil {
		t.Fatal(err)
	}
	url := path
	if strings.HasPrefix(path, "/") {
		mark := "?"
		if strings.Contains(path, "?") {
			mark = "&"
		}
		url = base + path + mark + "api-version=" + lab.ProviderAPI
	}
	text := []byte{}
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client, err := bench.HTTPClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: response.StatusCode, header: response.Header, text: string(read)}
	if len(read) > 0 {
		if err := json.Unmarshal(read, &a.body); err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, read)
		}
	}
	return a
}

// operator returns the principal that owns the lab's subscription.
func operator(t *testing.T) lab.Principal {
	t.Helper()
	who, err := bench.Azure()
	if err != nil {
		t.Fatal(err)
	}
	return who.Operator
}

// readyOf returns the Ready condition of a node in a response, single or in a list:
// "True/KubeletReady", or "" if it has none.
func readyOf(resource map[string]any) string {
	status, _ := properties(resource)["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == "Ready" {
			return fmt.Sprintf("%v/%v", c["status"], c["reason"])
		}
	}
	return ""
}

// shownReady returns a node's Ready condition in GET and LIST, or "" while they differ.
func shownReady(t *testing.T, name string) string {
	t.Helper()
	alone := readyOf(rp(t, 200, http.MethodGet, rpNode(name), nil))
	list, _ := rp(t, 200, http.MethodGet, lab.ClusterID+"/flexNodeConfig", nil)["value"].([]any)
	for _, one := range list {
		one := one.(map[string]any)
		if strings.EqualFold(one["name"].(string), name) && readyOf(one) == alone {
			return alone
		}
	}
	return ""
}

// nodeDeleted deletes a node's Node: the provider reports that, and that it is back.
func nodeDeleted(t *testing.T, m lab.Machine) {
	if err := bench.DeleteNode(t.Context(), m.Name); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Ready Unknown of a Node that is gone", func() bool {
		return shownReady(t, m.Name) == "Unknown/NodeNotFound"
	})
	must(t, m, "bootstrap")
	eventually(t, "Ready of a Node that is back", func() bool {
		return strings.HasPrefix(shownReady(t, m.Name), "True/")
	})
}

// providerClusters tests the provider with clusters, and with nodes that need no machine.
func providerClusters(t *testing.T) {
	t.Run("second registration", secondRegistration)
	t.Run("changed secret", changedSecret)
	t.Run("deleted and made again", deletedAndMade)
	t.Run("rotated kubeconfig", rotatedKubeconfig)
}

// An API server belongs to one registration: neither another cluster's kubeconfig nor an operator's
// binding changes that. An unreachable registration can be deleted, as an asynchronous operation.
func secondRegistration(t *testing.T) {
	who := operator(t)
	second := func(kubeconfig string) answer {
		return call(t, who, lab.AzureURL, http.MethodPut, lab.SecondClusterID,
			desired{"location": "lab", "properties": desired{"kubeconfig": kubeconfig}})
	}
	if a := second("flexlab"); a.status != 403 || !strings.Contains(a.text, "KubeconfigNotBound") {
		t.Errorf("a registration with another cluster's kubeconfig: %d %s", a.status, a.text)
	}
	t.Cleanup(func() { bindUnreachable(t, lab.SecondClusterID) })
	same, err := bench.ProviderKubeconfig(lab.APIServer)
	if err != nil {
		t.Fatal(err)
	}
	// After the registration, its kubeconfig is replaced by one for the first registration's API
	// server.
	bindUnreachable(t, lab.SecondClusterID)
	if a := second("second"); a.status != 201 {
		t.Fatalf("a registration with a kubeconfig of its own: %d %s", a.status, a.text)
	}
	if err := bench.BindKubeconfig(lab.SecondClusterID, same); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the refusal of a second registration", func() bool {
		shown := rp(t, 200, http.MethodGet, lab.SecondClusterID, nil)
		return properties(shown)["provisioningState"] == "Failed" &&
			properties(shown)["reachable"] != true
	})
	shown := rp(t, 200, http.MethodGet, lab.SecondClusterID, nil)
	if text, _ := json.Marshal(shown); !strings.Contains(string(text), "another registration") {
		t.Errorf("nothing says why the second registration has failed: %s", text)
	}
	first := call(t, who, lab.ProviderURL, http.MethodGet, lab.ClusterID, nil)
	if properties(first.body)["provisioningState"] != "Succeeded" {
		t.Errorf("the first registration: %s", first.text)
	}
	deleteSecond(t)
}

// bindUnreachable gives the provider a kubeconfig for an address at which no API server listens.
func bindUnreachable(t *testing.T, cluster string) {
	t.Helper()
	nowhere, err := bench.ProviderKubeconfig("https://" + lab.HostIP + ":1")
	if err == nil {
		err = bench.BindKubeconfig(cluster, nowhere)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// deleteSecond deletes the second registration and polls the operation through Resource Manager.
func deleteSecond(t *testing.T) {
	bindUnreachable(t, lab.SecondClusterID)
	who := operator(t)
	a := call(t, who, lab.AzureURL, http.MethodDelete, lab.SecondClusterID, nil)
	status, result := a.header.Get("Azure-AsyncOperation"), a.header.Get("Location")
	if a.status != 202 || a.text != "" || a.header.Get("Retry-After") == "" ||
		!strings.HasPrefix(status, lab.AzureURL+"/") || !strings.HasPrefix(result, lab.AzureURL+"/") {
		t.Fatalf("the deletion: %d %v %s", a.status, a.header, a.text)
	}
	eventually(t, "the end of the deletion", func() bool {
		return call(t, who, "", http.MethodGet, status, nil).body["status"] == "Succeeded"
	})
	if a := call(t, who, "", http.MethodGet, result, nil); a.status != 204 || a.text != "" {
		t.Errorf("the result of the deletion: %d %s", a.status, a.text)
	}
	if a := call(t, who, lab.AzureURL, http.MethodGet, lab.SecondClusterID, nil); a.status != 404 {
		t.Errorf("after the deletion: %d %s", a.status, a.text)
	}
}

// identityOfNode creates an application in the lab's Azure and returns it with the body of a node
// that uses it.
func identityOfNode(t *testing.T, secret string) (lab.Principal, desired) {
	t.Helper()
	p := lab.Principal{ClientID: "aaaaaaaa-0000-0000-0000-000000000088",
		ObjectID: "bbbbbbbb-0000-0000-0000-000000000088", Secret: "login-of-a-node"}
	azure(t, http.MethodPut, "/applications", azuresim.Application{ClientID: p.ClientID,
		ObjectID: p.ObjectID, Secrets: []azuresim.Secret{{Value: p.Secret}}})
	return p, desired{"properties": desired{"continuousMonitoring": true,
		"kubernetesAuth": desired{"useAzureAuth": true},
		"azureAuth": desired{"method": "servicePrincipal", "servicePrincipal": desired{
			"clientId": p.ClientID, "clientSecret": secret}}}}
}

// Only the node itself can fetch a changed client secret, and no other machine.
func changedSecret(t *testing.T) {
	node, body := identityOfNode(t, "first-secret")
	rp(t, 201, http.MethodPut, rpNode("secret-1"), body)
	_, body = identityOfNode(t, "second-secret")
	changed := rp(t, 200, http.MethodPut, rpNode("secret-1"), body)
	key, err := sealed.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	refresh := func(who lab.Principal) answer {
		return call(t, who, lab.ProviderURL, http.MethodPost,
			rpNode("secret-1")+"/refreshCredentials", desired{"publicKey": key.Public()})
	}
	a := refresh(node)
	var sent api.Refreshed
	if err := json.Unmarshal([]byte(a.text), &sent); err != nil || a.status != 200 {
		t.Fatalf("the node gets %d %s: %v", a.status, a.text, err)
	}
	uid, _ := properties(changed)["resourceUid"].(string)
	text, err := key.Open(sealed.About{ID: rpNode("secret-1"), UID: uid}, sent.EncapsulatedKey,
		sent.Ciphertext)
	if err != nil || !strings.Contains(string(text), "second-secret") ||
		strings.Contains(a.text, "secret\"") ||
		sent.ConfigVersion != properties(changed)["configVersion"] {
		t.Errorf("the node gets %s, in it %s (%v), want the secret of version %v", a.text, text, err,
			properties(changed)["configVersion"])
	}
	who, err := bench.Azure()
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]lab.Principal{"another node": who.Node,
		"its owner": who.Operator, "somebody": who.Unprivileged} {
		if a := refresh(other); a.status != 403 || strings.Contains(a.text, "secret\":") {
			t.Errorf("%s gets %d %s", name, a.status, a.text)
		}
	}
	rp(t, 200, http.MethodDelete, rpNode("secret-1"), nil)
}

// A node that is deleted and created again under its name is a new one: the old one's machine
// learns that it was deleted.
func deletedAndMade(t *testing.T) {
	node, body := identityOfNode(t, "any-secret")
	uid := func(resource map[string]any) string {
		uid, _ := properties(resource)["resourceUid"].(string)
		return uid
	}
	made := rp(t, 201, http.MethodPut, rpNode("again-1"), body)
	former, etag := uid(made), made["eTag"].(string)
	rp(t, 200, http.MethodDelete, rpNode("again-1"), nil)
	present := uid(rp(t, 201, http.MethodPut, rpNode("again-1"), body))
	if former == "" || present == "" || former == present {
		t.Fatalf("the uids are %q and %q", former, present)
	}
	who := operator(t)
	for name, poll := range map[string]func(uid string) answer{
		"the node": func(uid string) answer {
			return call(t, node, lab.ProviderURL, http.MethodGet, rpNode("again-1"), nil,
				"x-ms-flexnode-uid", uid, "If-None-Match", etag)
		},
		"Resource Manager": func(uid string) answer {
			return call(t, who, lab.AzureURL, http.MethodGet, rpNode("again-1"), nil,
				"x-ms-flexnode-uid", uid, "If-None-Match", etag)
		},
	} {
		if a := poll(former); a.status != 404 ||
			!strings.Contains(a.text, "FlexNodeConfigTombstone") || !strings.Contains(a.text, former) {
			t.Errorf("%s with the former uid: %d %s", name, a.status, a.text)
		}
		if a := poll(present); a.status != 200 || uid(a.body) != present {
			t.Errorf("%s with the present uid: %d %s", name, a.status, a.text)
		}
	}
	rp(t, 200, http.MethodDelete, rpNode("again-1"), nil)
}

// A replaced kubeconfig is used for everything: the new user approves certificate requests after
// the old one has lost its rights. A request while the cluster is unreachable becomes an operation,
// which ends once it is reachable.
func rotatedKubeconfig(t *testing.T) {
	const user = "flexnode-rp-2"
	ctx := context.WithoutCancel(t.Context())
	old, err := bench.ProviderKubeconfig(lab.APIServer)
	if err != nil {
		t.Fatal(err)
	}
	next, err := bench.IssueClient(user)
	if err != nil {
		t.Fatal(err)
	}
	allow := func(manifest string, kubeconfig []byte) {
		t.Helper()
		if err := bench.BindKubeconfig(lab.ClusterID, kubeconfig); err != nil {
			t.Error(err)
		}
		if _, err := bench.Kubectl(ctx, manifest, "apply", "-f", "-"); err != nil {
			t.Error(err)
		}
	}
	rbac := manifests.Text("rbac-provider.yaml")
	t.Cleanup(func() { allow(rbac, old) })

	bindUnreachable(t, lab.ClusterID)
	who := operator(t)
	a := waiting(t, who, rpNode("rotate-1"))
	others := strings.ReplaceAll(rbac, `kind: User, name: "flexnode-rp"`,
		`kind: User, name: "`+user+`"`)
	allow(others, next)
	rotated := time.Now()
	status := a.header.Get("Azure-AsyncOperation")
	eventually(t, "the end of the operation", func() bool {
		return call(t, who, "", http.MethodGet, status, nil).body["status"] == "Succeeded"
	})
	listed := rp(t, 200, http.MethodPost, rpNode("rotate-1")+"/listConfigUrl", desired{})
	url, _ := listed["configUrl"].(string)
	code, bundle := get(t, url)
	if code != 200 {
		t.Fatalf("the configuration URL %q: %d %s", url, code, bundle)
	}
	token := between(t, bundle, `"token": "`, `"`)
	if out, err := bench.Kubectl(ctx, "", "auth", "can-i", "update",
		"certificatesigningrequests/approval", "--as=flexnode-rp"); err == nil {
		t.Errorf("the old user may still approve: %s", out)
	}
	if answer := ask(t, token, "rotate-1"); answer != "Approved" {
		t.Errorf("a certificate request after the rotation: %s", answer)
	}
	t.Logf("approved %.1f s after the rotation", time.Since(rotated).Seconds())
	rp(t, 200, http.MethodDelete, rpNode("rotate-1"), nil)
}

// waiting requests a node's URL until the provider has noticed that its cluster is unreachable:
// then it is an operation.
func waiting(t *testing.T, who lab.Principal, id string) (a answer) {
	t.Helper()
	eventually(t, "a PUT that the cluster keeps waiting", func() bool {
		a = call(t, who, lab.AzureURL, http.MethodPut, id+"?configUrl=true",
			desired{"properties": desired{}})
		return a.header.Get("Azure-AsyncOperation") != ""
	})
	if state := properties(a.body)["provisioningState"]; state != "Creating" && state != "Updating" {
		t.Errorf("a PUT that the cluster keeps waiting: %v", state)
	}
	return a
}
