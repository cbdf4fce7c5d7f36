package front

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// Metrics holds the metrics of requests, for Prometheus.
type Metrics struct {
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	polls    *prometheus.CounterVec
	reads    prometheus.Counter
}

// NewMetrics makes and registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flexnode_rp_requests_total", Help: "Requests by operation and status.",
		}, []string{"operation", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "flexnode_rp_request_seconds", Help: "How long requests took, by operation.",
			Buckets: []float64{.0005, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30},
		}, []string{"operation"}),
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flexnode_rp_polls_total",
			Help: "Conditional reads of a node, by whether something had changed.",
		}, []string{"changed"}),
		reads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "flexnode_rp_bundle_reads_total", Help: "Configurations that were handed out.",
		}),
	}
	r.MustRegister(m.requests, m.latency, m.polls, m.reads)
	return m
}

// BundleRead counts a bundle that was handed out.
func (m *Metrics) BundleRead() { m.reads.Inc() }

// isPoll reports whether a request is a conditional GET of a node.
func (r *request) isPoll() bool {
	return r.route != nil && r.route.pattern == inNode && r.Method == http.MethodGet &&
		r.Header.Get("If-None-Match") != ""
}

// operationName returns the name of the requested operation in metrics and audit: the permission
// that it needs, with poll and list distinguished from read.
func (r *request) operationName() string {
	switch {
	case r.route == nil:
		return "unknown"
	case r.isPoll():
		return strings.TrimSuffix(r.route.permission, "read") + "poll"
	case r.route.permission == "":
		return r.route.method + " " + r.route.pattern
	case r.Method == http.MethodGet && !strings.HasSuffix(r.route.pattern, "}"):
		return strings.TrimSuffix(r.route.permission, "read") + "list"
	}
	return r.route.permission
}

// observe counts a request, and audits changes and refusals.
func (a *API) observe(r *request, w *response, took time.Duration) {
	operation := r.operationName()
	a.Metrics.requests.WithLabelValues(operation, strconv.Itoa(w.status)).Inc()
	a.Metrics.latency.WithLabelValues(operation).Observe(took.Seconds())
	if r.isPoll() {
		a.Metrics.polls.WithLabelValues(strconv.FormatBool(w.status != http.StatusNotModified)).Inc()
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if w.status == http.StatusTooManyRequests || w.status == http.StatusUnauthorized {
		return // a caller that floods, or is unknown, must not fill the log; the metrics count it
	}
	if !reads || w.status == http.StatusForbidden {
		a.audit(r, w, operation, took)
	} else if a.Log.Enabled(r.Context(), slog.LevelDebug) {
		a.Log.Debug("request", "request", r.id, "method", r.Method, "path", r.URL.Path,
			"status", w.status, "took", took)
	}
}

// Limits of a path and a method in the audit log, in bytes: a node's id has at most 400.
const auditedPath, auditedMethod = 512, 16

// audit writes a request to the audit log, without secrets: neither bodies nor queries.
func (a *API) audit(r *request, w *response, operation string, took time.Duration) {
	from := r.RemoteAddr
	if client := r.Header.Get("X-Ms-Client-Ip-Address"); r.caller.Trusted && client != "" {
		from = shorten(client)
	}
	a.Audit.LogAttrs(r.Context(), slog.LevelInfo, "request", slog.String("request", r.id),
		slog.String("correlation", w.Header().Get("X-Ms-Correlation-Request-Id")),
		slog.String("operation", operation), slog.String("method", flexnode.Cut(r.Method, auditedMethod)),
		slog.String("path", flexnode.Cut(r.URL.Path, auditedPath)),
		slog.Int("status", w.status), slog.String("code", w.Header().Get("X-Ms-Error-Code")),
		slog.String("caller", r.caller.Name), slog.String("object", r.caller.ObjectID),
		slog.String("tenant", r.caller.TenantID), slog.String("from", from),
		slog.String("before", r.before), slog.String("after", r.after),
		slog.String("took", took.Round(time.Microsecond).String()))
}

// trace begins a span for a request, below the caller's if it sends one (W3C Trace Context).
func (a *API) trace(r *request) (context.Context, trace.Span) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	return a.Tracer.Start(ctx, r.route.method+" "+r.route.pattern,
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("azure.request_id", r.id)))
}

// Gauges collects the numbers of nodes by condition and state, and the state of the store, without
// a walk over all nodes (prometheus.CollectorFunc).
func (a *API) Gauges(ch chan<- prometheus.Metric) {
	gauge := func(name, help string, value float64, labels prometheus.Labels) {
		desc := prometheus.NewDesc("flexnode_rp_"+name, help, nil, labels)
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	gauge("index_age_seconds", "How long ago the index has heard of the store.",
		a.Index.Age().Seconds(), nil)
	gauge("index_revision", "The store's revision that the index has reached.",
		float64(a.Index.Revision()), nil)
	waiting := a.Waiters.Count()
	gauge("waiting_polls", "Polls that wait for their nodes to change.", float64(waiting), nil)
	gauge("agents", "Agents that this replica expects to poll again, with those that wait.",
		float64(a.Pace.Agents(a.Now())+waiting), nil)
	count := map[[2]string]int{{api.Succeeded, "True"}: 0} // alerts compare it, also when it is 0
	for key, n := range a.Index.Counts() {
		count[[2]string{cmp.Or(key[0], api.Succeeded), cmp.Or(key[1], "Unknown")}] += n
	}
	for key, n := range count {
		gauge("nodes", "Nodes by provisioning state and Ready condition.", float64(n),
			prometheus.Labels{"state": key[0], "ready": key[1]})
	}
	reached := map[[2]string]int{{api.Succeeded, "false"}: 0}
	for row, _ := range a.Index.Clusters("", "") {
		c := flexnode.ShownCluster(row.Value).Properties
		if row.Value.Facts == "" { // never reached, refused, or unreadable
			c.ProvisioningState = api.Creating
		}
		reached[[2]string{c.ProvisioningState, strconv.FormatBool(c.Reachable)}]++
	}
	for key, n := range reached {
		gauge("clusters", "Clusters by provisioning state and whether they answer.", float64(n),
			prometheus.Labels{"state": key[0], "reachable": key[1]})
	}
	for _, class := range fair.Classes() {
		atOnce, waiting := a.Gate.Load(class)
		of := prometheus.Labels{"class": class.String()}
		gauge("requests_at_once", "Requests that are being answered, by class.", float64(atOnce), of)
		gauge("requests_waiting", "Requests that wait for others, by class.", float64(waiting), of)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	health, err := a.Store.Health(ctx)
	writable := 0.0
	if err == nil {
		gauge("store_bytes", "The size of the store's file.", float64(health.Size), nil)
		gauge("store_quota_bytes", "The max size of the store's file.", float64(health.Quota), nil)
		if health.Free >= 0 {
			gauge("store_free_bytes", "Free bytes of the disk of an embedded store.",
				float64(health.Free), nil)
		}
		if !health.Full && !health.Crowded {
			writable = 1
		}
	}
	gauge("store_writable", "1 if the store takes writes, as /readyz/write says; else 0.",
		writable, nil)
}
