package rp

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// Metrics are the provider's, in Prometheus' form.
type Metrics struct {
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	polls    *prometheus.CounterVec
	csrs     *prometheus.CounterVec
	reads    prometheus.Counter
}

// NewMetrics makes and registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "flexnode_rp_requests_total", Help: "Requests by operation and status."}, []string{"operation", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "flexnode_rp_request_seconds", Help: "How long requests took, by operation.",
			Buckets: []float64{.0005, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30}}, []string{"operation"}),
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "flexnode_rp_polls_total", Help: "Conditional reads of a node, by whether something had changed."}, []string{"changed"}),
		csrs:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "flexnode_rp_certificate_requests_total", Help: "Certificate requests of holders of bootstrap tokens, by decision."}, []string{"decision"}),
		reads: prometheus.NewCounter(prometheus.CounterOpts{Name: "flexnode_rp_bundle_reads_total", Help: "Configurations that were handed out."}),
	}
	r.MustRegister(m.requests, m.latency, m.polls, m.csrs, m.reads)
	return m
}

func (m *Metrics) csr(decision string) { m.csrs.WithLabelValues(decision).Inc() }

// BundleRead counts a configuration that was handed out.
func (m *Metrics) BundleRead() { m.reads.Inc() }

// gauges are what is counted when it is asked for.
type gauges struct {
	server                                  *Server
	nodes, credentials, age, revision, size *prometheus.Desc
}

// Gauges is a collector of what there is: nodes by condition and state, credentials by state, and how the store is.
func (s *Server) Gauges() prometheus.Collector {
	return &gauges{
		server:      s,
		nodes:       prometheus.NewDesc("flexnode_rp_nodes", "Nodes by provisioning state and Ready condition.", []string{"state", "ready"}, nil),
		credentials: prometheus.NewDesc("flexnode_rp_credentials", "Credentials by state.", []string{"state"}, nil),
		age:         prometheus.NewDesc("flexnode_rp_index_age_seconds", "How long ago the index has heard of the store.", nil, nil),
		revision:    prometheus.NewDesc("flexnode_rp_index_revision", "The store's revision that the index has reached.", nil, nil),
		size:        prometheus.NewDesc("flexnode_rp_store_bytes", "The size of the store's file.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	x := g.server.Index
	ch <- prometheus.MustNewConstMetric(g.age, prometheus.GaugeValue, x.Age().Seconds())
	ch <- prometheus.MustNewConstMetric(g.revision, prometheus.GaugeValue, float64(x.Revision()))
	count := map[[2]string]int{}
	for key, n := range x.Count() {
		ready := key[1]
		if ready == "" {
			ready = "Unknown"
		}
		count[[2]string{state(store.Node{State: key[0]}), ready}] += n
	}
	for key, n := range count {
		ch <- prometheus.MustNewConstMetric(g.nodes, prometheus.GaugeValue, float64(n), key[0], key[1])
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if rows, err := g.server.Store.Credentials.List(ctx, ""); err == nil {
		states := map[string]int{}
		for _, row := range rows {
			states[row.Value.State]++
		}
		for state, n := range states {
			ch <- prometheus.MustNewConstMetric(g.credentials, prometheus.GaugeValue, float64(n), state)
		}
	}
	if size, err := g.server.Store.Size(ctx); err == nil {
		ch <- prometheus.MustNewConstMetric(g.size, prometheus.GaugeValue, float64(size))
	}
}

// observe counts a request, and writes down who has changed what. Nothing secret is in it: neither bodies nor queries.
func (s *Server) observe(r *request, w *response, took time.Duration) {
	operation := "unknown"
	if r.route != nil {
		operation = r.route.permission
		if operation == "" {
			operation = r.route.method + " " + r.route.pattern
		}
	}
	s.Metrics.requests.WithLabelValues(operation, strconv.Itoa(w.status)).Inc()
	s.Metrics.latency.WithLabelValues(operation).Observe(took.Seconds())
	if r.Header.Get("If-None-Match") != "" && r.Method == http.MethodGet && r.route != nil {
		s.Metrics.polls.WithLabelValues(strconv.FormatBool(w.status != http.StatusNotModified)).Inc()
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		if s.Log.Enabled(r.Context(), slog.LevelDebug) {
			s.Log.Debug("request", "request", r.id, "method", r.Method, "path", r.URL.Path, "status", w.status, "took", took)
		}
		return
	}
	s.Audit.Info("request", "request", r.id, "correlation", w.Header().Get("x-ms-correlation-request-id"), "operation", operation, "path", shorten(r.URL.Path), "status", w.status,
		"code", w.Header().Get("x-ms-error-code"), "caller", r.caller.Name, "object", r.caller.ObjectID, "tenant", r.caller.TenantID, "from", r.RemoteAddr,
		"before", r.before, "after", r.after, "took", took.Round(time.Microsecond).String())
}

// trace begins a span for a request, below the caller's if it tells one (W3C Trace Context).
func (s *Server) trace(r *request) (context.Context, trace.Span) {
	if s.Tracer == nil {
		return r.Context(), noop.Span{}
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	return s.Tracer.Start(ctx, r.route.method+" "+r.route.pattern, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("azure.request_id", r.id)))
}
