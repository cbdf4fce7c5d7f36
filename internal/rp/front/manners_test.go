package front

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
)

// Every problem of a request is reported, with its place in the resource.
func TestProblems(t *testing.T) {
	w := newEdge(t)
	n, two := nodeURL("n"), `{"properties":{"nodeConfig":{"maxPods":-1,"taints":["x"]}}}`
	w.refused(400, "InvalidParameter", "PUT", n, `{"properties":{"versions":{"kubernetes":"1.36.0"}}}`,
		`"target":"properties.versions.kubernetes"`)
	w.refused(400, "MultipleErrorsOccurred", "PUT", n, two,
		`"target":"properties.nodeConfig.maxPods"`, `"target":"properties.nodeConfig.taints[0]"`)
	for _, body := range []string{"", `{"properties":{}} {}`, " null\n"} {
		w.refused(400, "InvalidRequestContent", "PUT", n, body)
	}
	w.must(404, "GET", n, "")
}

// Common rules of ARM, for any operation.
func TestManners(t *testing.T) {
	w := newEdge(t)
	n := nodeURL("n")
	but := func(old, new string) string { return strings.Replace(n, old, new, 1) }
	const other = "99999999-2222-3333-4444-555555555555"
	for _, tt := range []struct {
		method, url, body, header string
		status                    int
		want                      string
	}{
		{"GET", but(versionQuery, ""), "", "", 400, "MissingApiVersionParameter"},
		{"GET", but("2026-05-01-preview", "soon"), "", "", 400, "InvalidApiVersionParameter"},
		{"GET", but("2026-05-01-preview", "2020-01-01"), "", "", 400, "NoRegisteredProviderFound"},
		{"GET", but("api-version", "API-VERSION"), "", "", 404, "ResourceNotFound"},
		{"GET", but("preview", "PREVIEW"), "", "", 404, "ResourceNotFound"},
		{"GET", ownProvider + "?api-version=soon", "", "", 400, "InvalidApiVersionParameter"},
		{"GET", n + "&api-version=2026-05-01-preview", "", "", 400, "InvalidApiVersionParameter"},
		{"PATCH", n, "{}", "", 405, "MethodNotAllowed"},
		{"GET", but("flexNodeConfig", "flexNode"), "", "", 404, "InvalidResourceType"},
		{"GET", but("ContainerService", "Compute"), "", "", 404, "InvalidResourceNamespace"},
		{"GET", "/" + versionQuery, "", "", 400, "InvalidResourceId"},
		{"GET", but(subscription, "mine"), "", "", 400, "InvalidSubscriptionId"},
		{"GET", nodeURL("n_1"), "", "", 400, "InvalidResourceName"},
		{"GET", nodeURL("-n"), "", "", 400, "InvalidResourceName"},
		{"GET", nodeURL("a%2Fb"), "", "", 400, "InvalidResourceId"},
		{"GET", nodeURL("%2e%2e"), "", "", 400, "InvalidResourceId"},
		{"GET", but("/Factory", "//Factory"), "", "", 400, "InvalidResourceId"},
		{"GET", n, "", "x-ms-flexnode-uid: mine", 400, "InvalidHeaderValue"},
		{"PUT", n, `{"properties":{}}`, "Content-Type: text/plain", 415, "UnsupportedMediaType"},
		{"PUT", n, `{"properties":{"x":"` + strings.Repeat("x", maxBody) + `"}}`, "", 413,
			"RequestContentTooLarge"},
		{"GET", nodesURL + "&$skipToken=abc", "", "", 400, "InvalidSkipToken"},
		{"GET", nodesURL + "&$top=no", "", "", 400, "InvalidParameter"},
		{"GET", nodesURL + "&$filter=labels['a']+eq+'%'", "", "", 400, "InvalidParameter"},
		{"PUT", n + "&configUrl=", "{}", "", 400, "InvalidParameter"},
		{"PUT", n + "&acceptOldCertificate=yes", "{}", "", 400, "InvalidParameter"},
		{"DELETE", n + "&revokenow=1", "", "", 400, "InvalidParameter"},
		// parameters of another request: obeyed there, ignored they would surprise
		{"DELETE", n + "&dryRun=true", "", "", 400, "InvalidParameter"},
		{"DELETE", n + "&nodes=release", "", "", 400, "InvalidParameter"},
		{"DELETE", n + "&CONFIRM=1", "", "", 400, "InvalidParameter"},
		{"PUT", n + "&dryRun=true", `{"properties":{}}`, "", 400, "InvalidParameter"},
		{"POST", nodeURL("n", "/regenerateToken") + "&dryRun=false", "", "", 400, "InvalidParameter"},
		{"GET", clusterURL + "&dryRun=true", "", "", 400, "InvalidParameter"},
		{"DELETE", clusterURL + "&nodes=wipe&revokeNow=true", "", "", 400, "InvalidParameter"},
		{"POST", nodeURL("n", "/rollback") + "&revokeNow=true", "", "", 400, "InvalidParameter"},
		{"PUT", but(subscription, other), `{"properties":{}}`, "", 409,
			"MissingSubscriptionRegistration"},
		{"GET", operationURL(other), "", "", 404, "OperationNotFound"},
		{"GET", operationURL("mine"), "", "", 400, "InvalidOperationId"},
	} {
		r := w.do(tt.method, tt.url, tt.body, cmp.Or(tt.header, "Accept: */*"))
		what := fmt.Sprintf("%s %.200s", tt.method, tt.url)
		shows(t, what, fmt.Sprint(tt.status, " ", tt.want, " ", tt.want), r.StatusCode,
			code(readAll(r.Body)), r.Header.Get("x-ms-error-code"))
		shows(t, what+" has headers", "true true application/json; charset=utf-8",
			r.Header.Get("x-ms-request-id") != "", r.Header.Get("x-ms-correlation-request-id") != "",
			r.Header.Get("Content-Type"))
	}
}

func operationURL(id string) string {
	return ownProvider + "/locations/westeurope/operationStatuses/" + id + versionQuery
}

func TestHeaders(t *testing.T) {
	w := newEdge(t)
	r, _ := w.must(405, "PATCH", nodeURL("n"), "{}")
	equal(t, "Allow", r.Header.Get("Allow"), "GET, PUT, DELETE")
	r, _ = w.must(404, "GET", nodeURL("n"), "",
		"x-ms-correlation-request-id: c1", "x-ms-client-request-id: c2")
	equal(t, "the correlation id", r.Header.Get("x-ms-correlation-request-id"), "c1")
	equal(t, "the client's id, unasked", r.Header.Get("x-ms-client-request-id"), "")
	r, _ = w.must(404, "GET", nodeURL("n"), "",
		"x-ms-client-request-id: c2", "x-ms-return-client-request-id: true")
	equal(t, "the client's id of the request", r.Header.Get("x-ms-client-request-id"), "c2")
}

// Each route with a permission is in the list of operations.
func TestOperations(t *testing.T) {
	w := beside(t)
	_, text := w.must(200, "GET", "/providers/"+namespace+"/operations"+versionQuery, "")
	for _, r := range w.api.routes() {
		if r.permission != "" {
			has(t, "the list", text, `"`+r.permission+`"`)
		}
	}
}

// An unregistered or suspended subscription can be read and left, but not changed.
func TestSubscriptionStates(t *testing.T) {
	w, m := enrolled(t)
	w.tell(`{"state":"Suspended"}`)
	m.post(t, 204, "/leave", "{}")
	w.must(200, "GET", nodeURL("n"), "")
	w.refused(409, "InvalidSubscriptionState", "PUT", nodeURL("n"), `{"properties":{}}`)
	w.tell(`{"state":"Unregistered","properties":{"tenantId":"` + tenant + `"}}`)
	w.must(200, "GET", nodeURL("n"), "")
	w.must(409, "DELETE", nodeURL("n"), "")
	m.post(t, 204, "/leave", "{}")                                // a machine is always given back
	for _, client := range []string{"2019-05-01", "2021-04-01"} { // azcore, az
		w.settles(200, "POST", ownProvider+"/register?api-version="+client, "")
		w.must(200, "GET", ownProvider+"?api-version="+client, "")
	}
	row := must(w.api.Store.Subscriptions.Get(t.Context(), subscription))
	has(t, "what ARM told, after register", string(row.Value.Properties), tenant)
	w.must(200, "PUT", nodeURL("n"), `{"properties":{}}`)

	// One that is deleted takes its registrations along, and gives no machine back.
	w.tell(`{"state":"Deleted"}`)
	w.must(404, "GET", nodeURL("n"), "")
	c := w.storedCluster()
	shows(t, "its deletion", "true false", c.Deletion.Operation != "", c.Deletion.Wipe)
	w.must(404, "PUT", nodeURL("m"), `{"properties":{}}`)
	w.refused(404, "SubscriptionNotFound", "POST", registerURL, "")
	_, text := w.must(200, "GET", providerURL, "")
	has(t, "the provider", text, `"registrationState":"NotRegistered"`)
}

// A request is a span below its caller's; a poll has none.
func TestTraces(t *testing.T) {
	w := newEdge(t)
	spans := tracetest.NewSpanRecorder()
	w.api.Tracer = trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("test")
	const parent = "0af7651916cd43dd8448eb211c80319c"
	r, _ := w.settles(201, "PUT", nodeURL("n"), `{"properties":{}}`,
		"traceparent: 00-"+parent+"-b7ad6b7169203331-01")
	w.must(304, "GET", nodeURL("n"), "", "If-None-Match: "+r.Header.Get("ETag"))
	ended := spans.Ended()
	last := ended[len(ended)-1]
	has(t, "the span", last.Name(), "PUT /subscriptions/{subscription}")
	equal(t, "its parent", last.Parent().TraceID().String(), parent)
}

// A panic of a handler is answered and logged with its stack, and ends its request only.
func TestPanic(t *testing.T) {
	w, log := newEdge(t), &rptest.Log{}
	w.api.Log = slog.New(slog.NewJSONHandler(log, nil))
	w.during("read", func() { panic("boom") })
	w.refused(503, "ServiceUnavailable", "GET", clusterURL, "")
	has(t, "the log", log.String(), "internal error: panic", "boom", "manners_test.go")
	w.must(200, "GET", clusterURL, "")
}
