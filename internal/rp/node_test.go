package rp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
)

const withPrincipal = `{"properties":{"continuousMonitoring":true,"azureAuth":{"method":"servicePrincipal","servicePrincipal":{"clientId":"aaaaaaaa-0000-0000-0000-000000000001","clientSecret":"hush-hush","clientTenant":"99999999-0000-0000-0000-000000000000"}},"kubernetesAuth":{"useAzureAuth":true},"versions":{"kubernetes":"1.34.4"},"nodeConfig":{"maxPods":50,"labels":{"environment":"prod"},"taints":["edge=true:NoSchedule"]}}}`

// The life of a node with an identity in Azure, as document 004 tells it.
func TestLifeOfANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	r, text := w.must(201, "PUT", nodeURL("Edge-1")+"&configUrl=true", withPrincipal)
	n := shownNode(t, text)
	p := n.Properties
	if n.ID != cluster+"/flexNodeConfig/Edge-1" || n.Name != "Edge-1" || n.Type != api.ResourceType || n.ETag != r.Header.Get("ETag") || n.ETag != `"`+p.ConfigVersion+`"` {
		t.Errorf("envelope: %+v, header ETag %s", n, r.Header.Get("ETag"))
	}
	if p.ProvisioningState != api.Succeeded || p.ConfigURL == "" || p.ConfigURLExpires.Sub(w.clock.now()) != lifetime {
		t.Errorf("properties: %+v", p)
	}
	if n.SystemData.CreatedBy != "ops@example.com" || n.SystemData.CreatedByType != "User" {
		t.Errorf("systemData: %+v", n.SystemData)
	}
	if strings.Contains(text, "hush") {
		t.Error("the answer holds the client secret")
	}

	_, bundle := w.must(200, "GET", path(p.ConfigURL), "")
	c, _, err := config.Parse([]byte(bundle), config.Host{HostName: "other", Arch: "amd64"})
	if err != nil {
		t.Fatalf("the agent does not take the bundle: %v\n%s", err, bundle)
	}
	got := []any{c.Agent.NodeName, c.Azure.ServicePrincipal.ClientSecret.Reveal(), c.Azure.TargetCluster.ResourceID, c.Azure.TargetCluster.Location, c.Kubernetes.Version, c.Node.MaxPods, c.Node.Kubelet.ServerURL, c.Node.Kubelet.DNSServiceIP, c.ContinuousMonitoring, c.Azure.TenantID, c.Node.Labels["environment"], c.Node.Taints[0]}
	want := []any{"edge-1", "hush-hush", cluster, "westeurope", "1.34.4", 50, "https://factory.example:6443", "10.96.0.10", true, "99999999-0000-0000-0000-000000000000", "prod", "edge=true:NoSchedule"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	// The same again, without the secret and in another casing: nothing changes but the credential, and the casing that is shown.
	shouted := strings.ReplaceAll(nodeURL("EDGE-1"), "resourceGroups", "RESOURCEGROUPS")
	w.clock.pass(1e12)
	_, text = w.must(200, "PUT", shouted, strings.ReplaceAll(withPrincipal, `"clientSecret":"hush-hush",`, ""))
	again := shownNode(t, text)
	if again.Properties.ConfigVersion != p.ConfigVersion || again.ETag != n.ETag || again.SystemData.LastModifiedAt != n.SystemData.LastModifiedAt {
		t.Errorf("an equal PUT changed the version from %s to %s", p.ConfigVersion, again.Properties.ConfigVersion)
	}
	if again.Name != "EDGE-1" || again.Properties.ConfigURL != "" {
		t.Errorf("name %s, url %q", again.Name, again.Properties.ConfigURL)
	}
	w.must(403, "GET", path(p.ConfigURL), "")
	w.settled()

	_, text = w.must(200, "GET", nodeURL("edge-1"), "")
	shown := shownNode(t, text)
	if strings.Contains(text, "hush") || strings.Contains(text, "configUrl") {
		t.Errorf("GET shows a secret: %s", text)
	}
	if _, _, err := config.Parse(must(json.Marshal(shown.Properties.Config)), config.Host{HostName: "x", Arch: "amd64"}); err == nil || !strings.Contains(err.Error(), "clientSecret") {
		t.Errorf("the shown configuration lacks more than its secret: %v", err)
	}
	r, _ = w.must(304, "GET", nodeURL("edge-1"), "", "If-None-Match: "+n.ETag)
	if r.Header.Get("ETag") != n.ETag {
		t.Error("a 304 without ETag")
	}
	w.must(200, "GET", nodeURL("edge-1"), "", `If-None-Match: "7"`)

	w.must(204, "POST", nodeURL("edge-1", "/reportStatus"), `{"appliedConfigVersion":"`+p.ConfigVersion+`","conditions":[{"type":"Applied","status":"True"}]}`)
	w.settled()
	r, text = w.must(200, "GET", nodeURL("edge-1"), "")
	if s := shownNode(t, text).Properties.Status; s == nil || s.AppliedConfigVersion != p.ConfigVersion || len(s.Conditions) != 1 || s.LastSeen == nil {
		t.Errorf("status: %s", text)
	}
	if r.Header.Get("ETag") != n.ETag {
		t.Error("a report of status changed the ETag")
	}

	_, text = w.must(200, "PUT", nodeURL("edge-1"), strings.ReplaceAll(strings.ReplaceAll(withPrincipal, `"clientSecret":"hush-hush",`, ""), "1.34.4", "1.35.0"))
	if changed := shownNode(t, text); changed.Properties.ConfigVersion <= p.ConfigVersion {
		t.Errorf("a change left the version at %s", changed.Properties.ConfigVersion)
	}

	w.must(200, "DELETE", nodeURL("edge-1"), "")
	w.must(204, "DELETE", nodeURL("edge-1"), "")
	w.settled()
	_, text = w.must(404, "GET", nodeURL("edge-1"), "")
	if code(text) != "ResourceNotFound" || !strings.Contains(text, TombstoneInfo) {
		t.Errorf("after its delete: %s", text)
	}
	_, text = w.must(404, "GET", nodeURL("never"), "")
	if strings.Contains(text, TombstoneInfo) {
		t.Errorf("a tombstone for a node that never was: %s", text)
	}
	_, text = w.must(201, "PUT", nodeURL("edge-1"), withPrincipal)
	if reborn := shownNode(t, text); reborn.Properties.ConfigVersion <= p.ConfigVersion {
		t.Errorf("a node that was made again goes back to version %s", reborn.Properties.ConfigVersion)
	}
	w.must(404, "GET", strings.Replace(nodeURL("edge-1"), "Factory", "Unknown", 1), "")
	if strings.Contains(w.audit.String(), "hush") || !strings.Contains(w.audit.String(), "ops@example.com") {
		t.Errorf("audit: %s", w.audit.String())
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// az sends a location with every resource; a proxy resource has none.
func TestLocationIsIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	if _, text := w.must(201, "PUT", nodeURL("n"), `{"location":"mars","properties":{}}`, "User-Agent: AZURECLI/2.45.0"); strings.Contains(text, "mars") {
		t.Errorf("the location is kept: %s", text)
	}
}

// ETags in requests (RPC, ETags; facts of a table there).
func TestPreconditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	url := nodeURL("n")
	const body = `{"properties":{}}`
	w.must(412, "PUT", url, body, "If-Match: *")
	w.must(412, "PUT", url, body, `If-Match: "1"`)
	w.must(204, "DELETE", url, "", "If-Match: *")
	r, _ := w.must(201, "PUT", url, body, "If-None-Match: *")
	etag := r.Header.Get("ETag")
	w.must(412, "PUT", url, body, "If-None-Match: *")
	w.must(412, "PUT", url, body, `If-Match: "1"`)
	w.must(200, "PUT", url, body, "If-Match: *")
	w.must(200, "PUT", url, body, `If-Match: "1", `+etag)
	w.must(412, "POST", nodeURL("n", "/regenerateToken"), `{}`, `If-Match: "1"`)
	w.must(412, "DELETE", url, "", `If-Match: "1"`)
	w.must(200, "DELETE", url, "", "If-Match: "+etag)
}

func TestPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	for i := range 7 {
		w.must(201, "PUT", nodeURL(fmt.Sprintf("n-%d", i)), `{"properties":{}}`)
	}
	w.settled()
	var names []string
	url := cluster + "/flexNodeConfig" + versionQuery + "&$top=3"
	for pages := 0; url != ""; pages++ {
		_, text := w.must(200, "GET", url, "")
		var page api.List[api.FlexNodeConfig]
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatal(err)
		}
		for _, n := range page.Value {
			names = append(names, n.Name)
		}
		url = path(page.NextLink)
		if pages > 3 {
			t.Fatal("pages without end")
		}
	}
	if got := strings.Join(names, " "); got != "n-0 n-1 n-2 n-3 n-4 n-5 n-6" {
		t.Errorf("got %s", got)
	}
	if _, text := w.must(200, "GET", cluster+"/flexNodeConfig"+versionQuery+"&$top=7", ""); strings.Contains(text, "nextLink") {
		t.Error("the last page has a nextLink")
	}
	_, text := w.must(404, "GET", strings.Replace(cluster, "Factory", "None", 1)+"/flexNodeConfig"+versionQuery, "")
	if code(text) != "ParentResourceNotFound" {
		t.Errorf("list below an unknown cluster: %s", text)
	}
}

// Every problem of a request is told, with its place in the resource.
func TestProblems(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	tests := []struct{ body, want string }{
		{`{"properties":{"versions":{"kubernetes":"1.36.0"}}}`, "InvalidParameter properties.versions.kubernetes"},
		{`{"properties":{"versions":{"kubernetes":"1.31.0"}}}`, "InvalidParameter properties.versions.kubernetes"},
		{`{"properties":{"versions":{"kubernetes":"new"}}}`, "InvalidParameter properties.versions.kubernetes"},
		{`{"properties":{"nodeConfig":{"maxPods":-1,"labels":{"a b":"c"},"taints":["x"]}}}`, "MultipleErrorsOccurred properties.nodeConfig.labels[\"a b\"] properties.nodeConfig.maxPods properties.nodeConfig.taints[0]"},
		{`{"properties":{"nodeConfig":{"kubelet":{"imageGCHighThreshold":10,"imageGCLowThreshold":20}}}}`, "InvalidParameter properties.nodeConfig.kubelet.imageGCLowThreshold"},
		{`{"properties":{"continuousMonitoring":true,"kubernetesAuth":{"useAzureAuth":true}}}`, "MultipleErrorsOccurred properties.continuousMonitoring properties.kubernetesAuth.useAzureAuth"},
		{`{"properties":{"azureAuth":{"method":"magic"}}}`, "InvalidParameter properties.azureAuth.method"},
		{`{"properties":{"azureAuth":{"method":"servicePrincipal"}}}`, "InvalidParameter properties.azureAuth.servicePrincipal"},
		{`{"properties":{"azureAuth":{"method":"servicePrincipal","servicePrincipal":{"clientId":"aaaaaaaa-0000-0000-0000-000000000001"}}}}`, "InvalidParameter properties.azureAuth.servicePrincipal.clientSecret"},
		{`{"properties":{"azureAuth":{"method":"servicePrincipal","servicePrincipal":{"clientId":"me","clientSecret":"x"}},"kubernetesAuth":{"useAzureAuth":true}}}`, "InvalidParameter properties.azureAuth.servicePrincipal.clientId"},
		{`{"properties":{"azureAuth":{"method":"arc","arc":{"machineResourceId":"/x"}}}}`, "InvalidParameter properties.azureAuth.arc.machineResourceId"},
		{`{"properties":{"continuousMonitoring":true,"azureAuth":{"method":"managedIdentity"}}}`, "InvalidParameter properties.azureAuth.managedIdentity"},
		{`{"name":"other","properties":{}}`, "InvalidParameter"},
		{`{"properties":{"provisioningState":"Failed"}}`, "InvalidParameter"},
		{`{"properties":{"maxPods":1}}`, "InvalidRequestContent"},
		{`{"properties":{}} {}`, "InvalidRequestContent"},
		{`{"properties":{},"Properties":{}}`, "InvalidRequestContent"},
		{`{"properties":` + strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 101), "InvalidRequestContent"},
		{`{`, "InvalidRequestContent"},
	}
	for _, tt := range tests {
		_, text := w.must(400, "PUT", nodeURL("n"), tt.body)
		var body struct {
			Error struct {
				Code, Target string
				Details      []struct{ Target string }
			}
		}
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			t.Fatal(err)
		}
		got := []string{body.Error.Code}
		if body.Error.Target != "" {
			got = append(got, body.Error.Target)
		}
		for _, d := range body.Error.Details {
			got = append(got, d.Target)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s:\n got %s\nwant %s\n%s", tt.body, strings.Join(got, " "), tt.want, text)
		}
	}
	w.must(404, "GET", nodeURL("n"), "")
}

// The manners of ARM, whatever the operation.
func TestManners(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	tests := []struct {
		method, url, body, header string
		status                    int
		want                      string
	}{
		{"GET", strings.Replace(nodeURL("n"), versionQuery, "", 1), "", "", 400, "MissingApiVersionParameter"},
		{"GET", strings.Replace(nodeURL("n"), "2026-05-01-preview", "soon", 1), "", "", 400, "InvalidApiVersionParameter"},
		{"GET", strings.Replace(nodeURL("n"), "2026-05-01-preview", "2020-01-01", 1), "", "", 400, "NoRegisteredProviderFound"},
		{"GET", strings.Replace(nodeURL("n"), "api-version", "API-VERSION", 1), "", "", 404, "ResourceNotFound"},
		{"GET", strings.Replace(nodeURL("n"), "preview", "PREVIEW", 1), "", "", 404, "ResourceNotFound"},
		{"GET", nodeURL("n") + "&api-version=2026-05-01-preview", "", "", 400, "InvalidApiVersionParameter"},
		{"PATCH", nodeURL("n"), "{}", "", 405, "MethodNotAllowed"},
		{"GET", strings.Replace(nodeURL("n"), "flexNodeConfig", "flexNode", 1), "", "", 404, "InvalidResourceType"},
		{"GET", strings.Replace(nodeURL("n"), "ContainerService", "Compute", 1), "", "", 404, "InvalidResourceNamespace"},
		{"GET", "/" + versionQuery, "", "", 400, "InvalidResourceId"},
		{"GET", strings.Replace(nodeURL("n"), subscription, "mine", 1), "", "", 400, "InvalidSubscriptionId"},
		{"GET", nodeURL("n_1"), "", "", 400, "InvalidResourceName"},
		{"GET", nodeURL("-n"), "", "", 400, "InvalidResourceName"},
		{"GET", nodeURL("a%2Fb"), "", "", 400, "InvalidResourceId"},
		{"GET", nodeURL("%2e%2e"), "", "", 400, "InvalidResourceId"},
		{"GET", strings.Replace(nodeURL("n"), "/Factory", "//Factory", 1), "", "", 400, "InvalidResourceId"},
		{"PUT", nodeURL("n"), `{"properties":{}}`, "Content-Type: text/plain", 415, "UnsupportedMediaType"},
		{"PUT", nodeURL("n"), `{"properties":{"x":"` + strings.Repeat("x", maxBody) + `"}}`, "", 413, "RequestContentTooLarge"},
		{"GET", cluster + "/flexNodeConfig" + versionQuery + "&$skipToken=abc", "", "", 400, "InvalidSkipToken"},
		{"GET", cluster + "/flexNodeConfig" + versionQuery + "&$top=no", "", "", 400, "InvalidParameter"},
		{"PUT", strings.Replace(nodeURL("n"), subscription, "99999999-2222-3333-4444-555555555555", 1), `{"properties":{}}`, "", 409, "MissingSubscriptionRegistration"},
	}
	for _, tt := range tests {
		headers := []string{}
		if tt.header != "" {
			headers = append(headers, tt.header)
		}
		r := w.do(tt.method, tt.url, tt.body, headers...)
		text := new(strings.Builder)
		if _, err := fmt.Fprint(text, readAll(t, r.Body)); err != nil {
			t.Fatal(err)
		}
		if r.StatusCode != tt.status || code(text.String()) != tt.want || r.Header.Get("x-ms-error-code") != tt.want {
			t.Errorf("%s %.200s: %d %s, want %d %s", tt.method, tt.url, r.StatusCode, text, tt.status, tt.want)
		}
		if r.Header.Get("x-ms-request-id") == "" || r.Header.Get("x-ms-correlation-request-id") == "" || r.Header.Get("Content-Type") != "application/json; charset=utf-8" {
			t.Errorf("%s %s: headers %v", tt.method, tt.url, r.Header)
		}
	}
	r, _ := w.must(405, "PATCH", nodeURL("n"), "{}")
	if got := r.Header.Get("Allow"); got != "GET, PUT, DELETE" {
		t.Errorf("Allow: %s", got)
	}
	r, _ = w.must(404, "GET", nodeURL("n"), "", "x-ms-correlation-request-id: c1", "x-ms-client-request-id: c2")
	if r.Header.Get("x-ms-correlation-request-id") != "c1" || r.Header.Get("x-ms-client-request-id") != "" {
		t.Errorf("headers %v", r.Header)
	}
	r, _ = w.must(404, "GET", nodeURL("n"), "", "x-ms-client-request-id: c2", "x-ms-return-client-request-id: true")
	if r.Header.Get("x-ms-client-request-id") != "c2" {
		t.Errorf("headers %v", r.Header)
	}
}

// What is not registered or suspended can be read and left, not changed.
func TestSubscriptionStates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	w.must(201, "PUT", nodeURL("n"), `{"properties":{}}`)
	state := func(s string) {
		w.must(200, "PUT", "/subscriptions/"+subscription+"?api-version=2.0", `{"state":"`+s+`"}`)
		w.settled()
	}
	state("Suspended")
	w.must(200, "GET", nodeURL("n"), "")
	_, text := w.must(409, "PUT", nodeURL("n"), `{"properties":{}}`)
	if code(text) != "InvalidSubscriptionState" {
		t.Error(text)
	}
	state("Unregistered")
	w.must(200, "GET", nodeURL("n"), "")
	w.must(409, "DELETE", nodeURL("n"), "")
	w.must(200, "POST", "/subscriptions/"+subscription+"/providers/Microsoft.ContainerService/register?api-version=2021-04-01", "")
	w.settled()
	w.must(200, "PUT", nodeURL("n"), `{"properties":{}}`)
	state("Deleted")
	w.must(404, "GET", nodeURL("n"), "")
	if rows, err := w.server.Store.Nodes.List(t.Context(), ""); err != nil || len(rows) != 0 {
		t.Errorf("%d nodes are left of a deleted subscription: %v", len(rows), err)
	}
}

func TestPodSubnets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register(`"podCidr":"10.200.0.0/22","nodeCidrMask":24`)
	taken := map[string]bool{}
	subnet := func(name string) string {
		_, text := w.must(201, "PUT", nodeURL(name), `{"properties":{}}`)
		cni, _ := shownNode(t, text).Properties.Config["cni"].(map[string]any)
		s, _ := cni["podCIDR"].(string)
		return s
	}
	for i := range 4 {
		s := subnet(fmt.Sprintf("n%d", i))
		if taken[s] || !strings.HasPrefix(s, "10.200.") {
			t.Errorf("n%d got %q; taken are %v", i, s, taken)
		}
		taken[s] = true
	}
	_, text := w.must(409, "PUT", nodeURL("n4"), `{"properties":{}}`)
	if code(text) != "PodCIDRExhausted" {
		t.Error(text)
	}
	w.must(200, "DELETE", nodeURL("n2"), "")
	if s := subnet("n5"); !taken[s] {
		t.Errorf("n5 got %q, which nobody gave back", s)
	}
	w.must(400, "PUT", cluster+versionQuery, `{"location":"westeurope","properties":{"podCidr":"10.201.0.0/22","nodeCidrMask":24}}`)
}

// Each route is in the list of operations.
func TestOperations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, text := w.must(200, "GET", "/providers/Microsoft.ContainerService/operations"+versionQuery, "")
	for _, r := range w.server.routes() {
		if r.permission != "" && !strings.Contains(text, `"`+r.permission+`"`) {
			t.Errorf("%s is not listed", r.permission)
		}
	}
}

// Of two deletes of one node one has deleted it, whatever their steps.
func TestTwoDeletes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	w.must(201, "PUT", nodeURL("n"), `{"properties":{}}`)
	inner := 0
	w.server.Did = func(what string) {
		if what == "node marked" {
			inner = w.do("DELETE", nodeURL("n"), "").StatusCode
		}
	}
	w.must(200, "DELETE", nodeURL("n"), "")
	if inner != 204 {
		t.Errorf("the other delete says %d", inner)
	}
	// And one that comes between mark and end of a delete may be followed by a new node, which stays.
	w.server.Did = nil
	w.must(201, "PUT", nodeURL("n"), `{"properties":{}}`)
	w.server.Did = func(what string) {
		if what == "node marked" {
			inner = w.do("PUT", nodeURL("n"), `{"properties":{"nodeConfig":{"maxPods":9}}}`).StatusCode
		}
	}
	w.must(200, "DELETE", nodeURL("n"), "")
	if inner != 201 {
		t.Errorf("a PUT during a delete says %d", inner)
	}
	w.must(200, "GET", nodeURL("n"), "")
}
