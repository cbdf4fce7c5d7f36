package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/lab"
)

// rpNode returns the id of a flexNodeConfig.
func rpNode(name string) string { return lab.ClusterID + "/flexNodeConfig/" + name }

// rp sends a request of the operator through Resource Manager and fails the test unless the status
// is as wanted.
func rp(t *testing.T, want int, method, path string, body any, or ...int) map[string]any {
	t.Helper()
	status, text, err := bench.ARM(t.Context(), method, lab.AzureURL, path, lab.ProviderAPI, body)
	if err != nil {
		t.Fatal(err)
	}
	if status != want && !slices.Contains(or, status) {
		t.Fatalf("%s %s: %d, want %d: %s", method, path, status, want, text)
	}
	answer := map[string]any{}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return answer
}

// get returns the status and the content of a URL.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client, err := bench.HTTPClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	var status int
	var text []byte
	// The balancer cuts connections to a replica that has died.
	eventually(t, "an answer", func() bool {
		response, err := client.Get(url)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		status = response.StatusCode
		text, err = io.ReadAll(response.Body)
		return err == nil
	})
	return status, string(text)
}

// created creates a node and returns its configuration URL. If the cluster responds late, it
// requests the URL again, as az does.
func created(t *testing.T, name string, wanted any) (url string) {
	t.Helper()
	answer := rp(t, 201, http.MethodPut, rpNode(name)+"?configUrl=true", desired{"properties": wanted})
	url, _ = properties(answer)["configUrl"].(string)
	if url != "" {
		return url
	}
	t.Cleanup(func() {
		if url == "" {
			t.Logf("the last answer: %v\n%s", answer, providerWarnings(t))
		}
	})
	eventually(t, "the configuration URL of "+name, func() bool {
		answer = rp(t, 200, http.MethodPost, rpNode(name)+"/listConfigUrl", nil, 202)
		url, _ = answer["configUrl"].(string)
		return url != ""
	})
	return url
}

// providerWarnings returns the last warnings and errors of the provider's replicas.
func providerWarnings(t *testing.T) string {
	t.Helper()
	logs, err := filepath.Glob(bench.LogOf("flexnode-rp-*"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, `"level":"INFO"`) {
				lines = append(lines, filepath.Base(log)+": "+line)
			}
		}
	}
	return strings.Join(lines[max(0, len(lines)-40):], "")
}

func properties(answer map[string]any) map[string]any {
	p, _ := answer["properties"].(map[string]any)
	return p
}

type desired map[string]any

// The life of a node with a flexNodeConfig: PUT, URL, join; then no one else can use the token and
// the URL.
func provider(t *testing.T) {
	m := bareMachine(t, "rp-1")
	// The lab has only its own versions, whatever the defaults are.
	body := desired{"properties": desired{"versions": lab.Newest.Desired(),
		"nodeConfig": desired{"maxPods": 42, "labels": desired{"line": "7"}}}}
	answer := rp(t, 201, http.MethodPut, rpNode("RP-1")+"?configUrl=true", body)
	url, _ := properties(answer)["configUrl"].(string)
	status, bundle := get(t, url)
	if status != 200 {
		t.Fatalf("the configuration URL %q: %d %s", url, status, bundle)
	}
	if err := bench.PrepareText(m, agent, []byte(bundle)); err != nil {
		t.Fatal(err)
	}
	// A machine that fetched the configuration and crashed before it joined can fetch it again.
	if status, again := get(t, url); status != 200 || again != bundle {
		t.Errorf("the second read of the URL: %d", status)
	}
	token := between(t, bundle, `"token": "`, `"`)
	if status := ask(t, token, "rp-elsewhere"); status != "Denied" {
		t.Errorf("a request for another node's name: %s", status)
	}
	must(t, m, "bootstrap")
	if status, text := get(t, url); status != 403 {
		t.Errorf("the URL of a token that was used: %d %s", status, text)
	}
	if status := ask(t, token, "rp-1"); status != "Denied" && status != "Unauthorized" {
		t.Errorf("a second machine with the token: %s", status)
	}
	out, err := bench.Kubectl(t.Context(), "", "get", "node", "rp-1", "-o",
		"jsonpath={.status.capacity.pods} {.metadata.labels.line}")
	if err != nil || out != "42 7" {
		t.Errorf("the Node has %q, want 42 pods and the label 7: %v", out, err)
	}
	if _, err := bench.CheckPod(t.Context(), "pod-rp", "rp-1"); err != nil {
		t.Error(err)
	}
	eventually(t, "the Node's condition in the resource", func() bool {
		shown := rp(t, 200, http.MethodGet, rpNode("rp-1"), nil)
		text, _ := json.Marshal(properties(shown)["status"])
		return strings.Contains(string(text), `"type":"Ready"`) &&
			strings.Contains(string(text), `"status":"True"`)
	})
	// A node may not change its own taints, so the provider does.
	body["properties"].(desired)["nodeConfig"].(desired)["taints"] =
		[]string{"line=7:PreferNoSchedule"}
	rp(t, 200, http.MethodPut, rpNode("rp-1"), body)
	eventually(t, "the taint of the Node", func() bool {
		return slices.Contains(nodeOf(t, "rp-1").Spec.Taints,
			corev1.Taint{Key: "line", Value: "7", Effect: corev1.TaintEffectPreferNoSchedule})
	})
	nodeDeleted(t, m)

	t.Run("generic client", genericClient)
	t.Run("killed", killedProvider)

	eventually(t, "the Secret of the token that was used to go", func() bool {
		out, err := bench.Kubectl(t.Context(), "", "get", "secret", "-n", "kube-system",
			"bootstrap-token-"+token[:6], "--ignore-not-found", "-o", "name")
		return err == nil && out == ""
	})
	if status := ask(t, token, "rp-1"); status != "Unauthorized" {
		t.Errorf("a machine with a token that is gone: %s", status)
	}
	// A second join after a failure, with a new token.
	must(t, m, "unbootstrap", "--yes")
	answer = rp(t, 200, http.MethodPost, rpNode("rp-1")+"/regenerateToken", desired{})
	url, _ = answer["configUrl"].(string)
	joinByURL(t, m, url)
	// The provider deletes the Node of a leaving machine that has no right to do so.
	mayNotDelete(t, "rp-1")
	must(t, m, "unbootstrap", "--yes")
	out, err = bench.Kubectl(t.Context(), "", "get", "node", "rp-1", "--ignore-not-found")
	if err != nil || out != "" {
		t.Errorf("the Node of a machine that has left: %s, %v", out, err)
	}
	// DELETE while a node waits.
	rp(t, 200, http.MethodDelete, rpNode("rp-1"), nil)
	gone := rp(t, 404, http.MethodGet, rpNode("rp-1"), nil)
	if text, _ := json.Marshal(gone); !strings.Contains(string(text), "FlexNodeConfigTombstone") {
		t.Errorf("after the delete: %s", text)
	}
	t.Run("revoked", revoked)
	t.Run("rights", rights)
	t.Run("confined", confined)
}

func between(t *testing.T, text, before, after string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, before)
	value, _, ok2 := strings.Cut(rest, after)
	if !ok || !ok2 {
		t.Fatalf("no %s in %s", before, text)
	}
	return value
}

// ask files a certificate request with a bootstrap token, as a kubelet does, and returns its
// result.
func ask(t *testing.T, token, node string) string {
	t.Helper()
	client, err := bench.HTTPClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	name, _, status := fileRequest(t, client, token, node)
	if status == http.StatusUnauthorized {
		return "Unauthorized"
	}
	if status != http.StatusCreated {
		return http.StatusText(status)
	}
	var answers []certificatesv1.CertificateSigningRequestCondition
	eventually(t, "an answer to the certificate request", func() bool {
		answers = requestOf(t, name).Status.Conditions
		return len(answers) > 0
	})
	return string(answers[0].Type)
}

// requestOf returns a certificate request.
func requestOf(t *testing.T, name string) certificatesv1.CertificateSigningRequest {
	t.Helper()
	return object[certificatesv1.CertificateSigningRequest](t,
		"/apis/certificates.k8s.io/v1/certificatesigningrequests/"+name)
}

// fileRequest files a request for a node's client certificate, with a bootstrap token or the
// client's certificate. It returns the request's name, its key and the response's status.
func fileRequest(
	t *testing.T, client *http.Client, token, node string,
) (name string, key *ecdsa.PrivateKey, status int) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node,
			Organization: []string{"system:nodes"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	request := base64.StdEncoding.EncodeToString(block)
	name = fmt.Sprintf("test-%d", time.Now().UnixNano())
	status, _ = write(t, client, token, http.MethodPost,
		"/apis/certificates.k8s.io/v1/certificatesigningrequests", desired{
			"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
			"metadata": desired{"name": name},
			"spec": desired{"request": request,
				"signerName": "kubernetes.io/kube-apiserver-client-kubelet",
				"usages":     []string{"digital signature", "client auth"}},
		})
	return name, key, status
}

// write sends an object to the API server, with a bearer token or the client's certificate.
func write(
	t *testing.T, client *http.Client, token, method, path string, body desired,
) (status int, text string) {
	t.Helper()
	content, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, lab.APIServer+path,
		bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// genericClient goes through the lifecycle with Azure's own generic client, through Resource
// Manager.
func genericClient(t *testing.T) {
	ctx := t.Context()
	who, err := bench.Azure()
	if err != nil {
		t.Fatal(err)
	}
	transport, err := bench.HTTPClient()
	if err != nil {
		t.Fatal(err)
	}
	defer transport.CloseIdleConnections()
	options := policy.ClientOptions{Transport: transport,
		Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: lab.AzureURL,
			Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
				cloud.ResourceManager: {Endpoint: lab.AzureURL, Audience: lab.AzureURL},
			}}}
	credential, err := azidentity.NewClientSecretCredential(lab.Tenant, who.Operator.ClientID,
		who.Operator.Secret, &azidentity.ClientSecretCredentialOptions{ClientOptions: options,
			DisableInstanceDiscovery: true})
	if err != nil {
		t.Fatal(err)
	}
	client, err := armresources.NewClient(lab.Subscription, credential,
		&arm.ClientOptions{ClientOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	id := rpNode("sdk-1")
	poller, err := client.BeginCreateOrUpdateByID(ctx, id, lab.ProviderAPI,
		armresources.GenericResource{
			Properties: map[string]any{"nodeConfig": map[string]any{"maxPods": 30}},
		}, nil)
	if err != nil {
		t.Fatal(err)
	}
	made, err := poller.PollUntilDone(ctx, nil)
	if err != nil || *made.ID != id ||
		*made.Type != "Microsoft.ContainerService/managedClusters/flexNodeConfig" {
		t.Fatalf("%+v, %v", made, err)
	}
	got, err := client.GetByID(ctx, id, lab.ProviderAPI, nil)
	if err != nil || got.Properties.(map[string]any)["provisioningState"] != "Succeeded" {
		t.Fatalf("%+v, %v", got, err)
	}
	deletion, err := client.BeginDeleteByID(ctx, id, lab.ProviderAPI, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deletion.PollUntilDone(ctx, nil); err != nil {
		t.Fatal(err)
	}
	_, err = client.GetByID(ctx, id, lab.ProviderAPI, nil)
	if refused, ok := errors.AsType[*azcore.ResponseError](err); !ok ||
		refused.ErrorCode != "ResourceNotFound" {
		t.Errorf("after the delete: %v", err)
	}
	genericOperation(t, client)
}

// genericOperation polls an operation with Azure's generic client: the deletion of an unreachable
// registration.
func genericOperation(t *testing.T, client *armresources.Client) {
	ctx := t.Context()
	bindUnreachable(t, lab.SecondClusterID)
	made := call(t, operator(t), lab.AzureURL, http.MethodPut, lab.SecondClusterID,
		desired{"location": "lab", "properties": desired{"kubeconfig": "second"}})
	if made.status != 201 || made.header.Get("Azure-AsyncOperation") == "" ||
		properties(made.body)["provisioningState"] != "Creating" {
		t.Errorf("a registration that cannot be reached: %d %s", made.status, made.text)
	}
	deletion, err := client.BeginDeleteByID(ctx, lab.SecondClusterID, lab.ProviderAPI, nil)
	if err != nil {
		t.Fatal(err)
	}
	if deletion.Done() {
		t.Error("the deletion of a registration is no operation")
	}
	if _, err := deletion.PollUntilDone(ctx, nil); err != nil {
		t.Fatal(err)
	}
	_, err = client.GetByID(ctx, lab.SecondClusterID, lab.ProviderAPI, nil)
	if refused, ok := errors.AsType[*azcore.ResponseError](err); !ok ||
		refused.StatusCode != http.StatusNotFound {
		t.Errorf("after the deletion of the registration: %v", err)
	}
}

// killedProvider kills the provider with SIGKILL while it creates, regenerates and deletes.
// Afterwards every Secret of an issued token has a credential, no URL works that should not, and
// acknowledged writes are kept. The short form kills six times, the long one kills() times.
func killedProvider(t *testing.T) {
	ctx := t.Context()
	requests := 6
	if long() {
		requests = kills()
	}
	random := mathrand.New(mathrand.NewPCG(uint64(time.Now().UnixNano()), 1))
	acknowledged := map[string]bool{} // whether a node exists, if known
	var urls []string
	var killed atomic.Int32
	for i := range requests {
		name := fmt.Sprintf("kill-%d", i%3)
		method, path, body := http.MethodPut, rpNode(name)+"?configUrl=true",
			desired{"properties": desired{"nodeConfig": desired{"maxPods": 20 + i}}}
		switch {
		case acknowledged[name] && random.IntN(2) == 0:
			method, path, body = http.MethodPost, rpNode(name)+"/regenerateToken", desired{}
		case acknowledged[name] && random.IntN(2) == 0:
			method, path, body = http.MethodDelete, rpNode(name), nil
		}
		pid := bench.ProcessID("flexnode-rp-0")
		after := time.Duration(random.IntN(40)) * time.Millisecond
		timer := time.AfterFunc(after, func() {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed.Add(1)
			}
		})
		status, text, err := bench.ARM(ctx, method, lab.ProviderURL, path, lab.ProviderAPI, body)
		if err == nil && status < 300 {
			acknowledged[name] = method != http.MethodDelete
			if _, rest, ok := strings.Cut(text, `"configUrl":"`); ok {
				url, _, _ := strings.Cut(rest, `"`)
				urls = append(urls, strings.ReplaceAll(url, `\u0026`, "&"))
			}
		} else {
			delete(acknowledged, name)
		}
		timer.Stop()
		if bench.ProcessID("flexnode-rp-0") != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		eventually(t, "the provider to die",
			func() bool { return bench.ProcessID("flexnode-rp-0") == 0 })
		if err := bench.StartReplica(ctx, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d requests were cut short or followed by a kill", killed.Load(), requests)
	for name, there := range acknowledged {
		status, text, err := bench.ARM(ctx, http.MethodGet, lab.ProviderURL, rpNode(name),
			lab.ProviderAPI, nil)
		if err != nil || (status == 200) != there {
			t.Errorf("%s: acknowledged %v, but GET says %d %s (%v)", name, there, status, text, err)
		}
	}
	issued := map[string]bool{} // ids of the tokens that machines may have
	for _, url := range urls {
		_, text := get(t, url)
		for _, found := range tokenID.FindAllStringSubmatch(text, -1) {
			issued[found[1]] = true
		}
	}
	eventually(t, "a URL from the provider that was started last", func() bool {
		status, text, err := bench.ARM(ctx, http.MethodPut, lab.ProviderURL,
			rpNode("kill-0")+"?configUrl=true", lab.ProviderAPI, desired{"properties": desired{}})
		return err == nil && status < 202 && strings.Contains(text, `"configUrl":"`)
	})
	for i := range 3 {
		rp(t, 200, http.MethodPut, rpNode(fmt.Sprintf("kill-%d", i)), desired{"properties": desired{}},
			201)
		rp(t, 200, http.MethodDelete, rpNode(fmt.Sprintf("kill-%d", i)), nil)
	}
	eventually(t, "the Secrets of all revoked tokens to go", func() bool {
		out, err := bench.Kubectl(context.WithoutCancel(ctx), "", "get", "secret", "-n", "kube-system",
			"-l", "flexnode.azure.com/provider", "-o", "jsonpath={range .items[*]}{.data.token-id} "+
				"{.data.description} {.data.expiration}{\"\\n\"}{end}")
		return err == nil && !slices.ContainsFunc(strings.Split(strings.TrimSpace(out), "\n"),
			func(line string) bool { return remains(line, issued) })
	})
	for _, url := range urls {
		if status, _ := get(t, url); status != 403 {
			t.Errorf("a revoked URL says %d", status)
		}
	}
}

// tokenID matches bootstrap tokens and their ids.
var tokenID = regexp.MustCompile(`"([a-z0-9]{6})\.[a-z0-9]{16}"`)

// remains reports whether a deleted node's Secret should have been deleted because its token was
// issued. Any other, whose creation the killed provider did not record, must expire within a day.
func remains(line string, issued map[string]bool) bool {
	var texts [3]string // id, description, expiration
	for i, field := range strings.Fields(line) {
		text, _ := base64.StdEncoding.DecodeString(field)
		texts[i] = string(text)
	}
	if !strings.Contains(texts[1], "/kill-") {
		return false
	}
	expires, err := time.Parse(time.RFC3339, texts[2])
	return issued[texts[0]] || err != nil || time.Until(expires) > 24*time.Hour
}
