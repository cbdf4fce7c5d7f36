package front

import (
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
)

// Metrics are those of requests, in Prometheus' form.
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

// BundleRead counts a configuration that was handed out.
func (m *Metrics) BundleRead() { m.reads.Inc() }

// isPoll reports whether a request is a conditional GET of a node.
func (r *request) isPoll() bool {
	return r.route != nil && r.route.pattern == inNode && r.Method == http.MethodGet &&
		first(r.Header["If-None-Match"]) != ""
}

// operationName returns the name of the requested operation in metrics and audit: the permission
// that it needs, with poll and list distinguished from read.
func (r *request) operationName() string {
	switch {
	case r.route == nil:
		return "unknown"
	case r.isPoll():
		return r.route.polling
	case r.route.permission == "":
		return r.route.method + " " + r.route.pattern
	case r.Method == http.MethodGet && !strings.HasSuffix(r.route.pattern, "}"):
		return strings.TrimSuffix(r.route.permission, "read") + "list"
	}
	return r.route.permission
}

// observe counts a request, and writes down who has changed what, and who was refused.
func (a *API) observe(r *request, w *response, took time.Duration) {
	operation := r.operationName()
	a.Metrics.requests.WithLabelValues(operation, strconv.Itoa(w.status)).Inc()
	a.Metrics.latency.WithLabelValues(operation).Observe(took.Seconds())
	if r.isPoll() {
		changed := w.status != http.StatusNotModified
		a.Metrics.polls.WithLabelValues(strconv.FormatBool(changed)).Inc()
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if w.status == http.StatusTooManyRequests || w.status == http.StatusUnauthorized {
		return // a caller that floods, or is unknown, must not fill the log; the metrics count it
	}
	if !reads || w.status == http.StatusForbidden {
		a.audit(r, w, operation, took)
		return
	}
	if a.Log.Enabled(r.Context(), slog.LevelDebug) {
		a.Log.Debug("request", "request", r.id, "method", r.Method, "path", r.URL.Path,
			"status", w.status, "took", took)
	}
}

// How much of a path and of a method the audit log takes, in bytes: the id of a node has at most
// 400.
const (
	auditedPath   = 512
	auditedMethod = 16
)

// audit writes down a request. Nothing secret is in it: neither bodies nor queries.
func (a *API) audit(r *request, w *response, operation string, took time.Duration) {
	from := r.RemoteAddr
	if client := r.Header.Get("X-Ms-Client-Ip-Address"); r.caller.Trusted && client != "" {
		from = shorten(client)
	}
	a.Audit.LogAttrs(r.Context(), slog.LevelInfo, "request", slog.String("request", r.id),
		slog.String("correlation", w.Header().Get("X-Ms-Correlation-Request-Id")),
		slog.String("operation", operation), slog.String("method", cut(r.Method, auditedMethod)),
		slog.String("path", cut(r.URL.Path, auditedPath)),
		slog.Int("status", w.status), slog.String("code", w.Header().Get("X-Ms-Error-Code")),
		slog.String("caller", r.caller.Name), slog.String("object", r.caller.ObjectID),
		slog.String("tenant", r.caller.TenantID), slog.String("from", from),
		slog.String("before", r.before), slog.String("after", r.after),
		slog.String("took", took.Round(time.Microsecond).String()))
}

// isTraced reports whether a request makes a span. Polls make none: they would be nearly all spans.
func (a *API) isTraced(r *request) bool { return a.Tracer != nil && !r.isPoll() }

// trace begins a span for a request, below the caller's if it tells one (W3C Trace Context).
func (a *API) trace(r *request) (context.Context, trace.Span) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	return a.Tracer.Start(ctx, r.route.method+" "+r.route.pattern,
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("azure.request_id", r.id)))
}
