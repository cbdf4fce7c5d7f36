// Package service is the provider as a program: settings, listeners, and its start and end.
package service

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/Azure/AKSFlexNode/internal/rp/cluster"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/front"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

type service struct {
	Program
	settings   Settings
	log, audit *slog.Logger
	store      *store.Store
	index      *store.Index
	seen       *store.Seen
	presence   *store.Presence
	membership *store.Membership
	clusters   *cluster.Manager
	api        *front.API
	client     *http.Client        // of requests to Azure
	handout    *credential.Handout // nil with blobs
	health     *health
	registry   *prometheus.Registry
	arrivals   arrivals
	// drain waits, after the signal to stop, until no more requests come.
	drain func()
	// fatal receives errors after which the program cannot continue.
	fatal chan error
}

// Run serves until ctx ends, and then drains, finishes the work under way, and stores its state.
func Run(ctx context.Context, settings Settings, program Program, out io.Writer) error {
	if err := program.Role.Check(settings); err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(settings.LogLevel)); err != nil {
		return err
	}
	handler := slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})
	// This keeps the garbage collector from running many times a second with few nodes. It comes
	// before all else, from unused memory, and is never written, so it takes no memory.
	room := make([]byte, 32<<20)
	defer runtime.KeepAlive(room)
	if settings.AuditFile != "" {
		f := &lumberjack.Logger{ // in MB; it must not fill the disk of the store
			Filename: settings.AuditFile, MaxSize: 100, MaxBackups: 50, Compress: true,
		}
		if _, err := f.Write(nil); err != nil {
			return fmt.Errorf("cannot open the audit log: %w", err)
		}
		defer func() { _ = f.Close() }()
		out = f
	}
	backend, err := openStore(ctx, settings)
	if err != nil {
		return err
	}
	defer func() { _ = backend.Close() }() // the errors of its end were reported before
	log := slog.New(handler)
	s := &service{
		Program: program, settings: settings, log: log, store: store.New(backend),
		audit:    slog.New(slog.NewJSONHandler(&auditWriter{Writer: out, log: log}, nil)),
		registry: prometheus.NewRegistry(), fatal: make(chan error, 8),
		drain: func() { time.Sleep(time.Duration(settings.DrainSeconds) * time.Second) },
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	tracer, stopTracing, err := newTracer(ctx, settings.OTLPEndpoint)
	if err != nil {
		return err
	}
	defer stopTracing()
	if err := s.assemble(ctx); err != nil {
		return err
	}
	s.api.Tracer = tracer
	if err := s.load(ctx); err != nil {
		return err
	}
	return s.serve(ctx)
}

// auditWriter logs when the first audit line is lost, and when one is written again: slog discards
// the error.
type auditWriter struct {
	io.Writer
	log  *slog.Logger
	lost bool
}

func (w *auditWriter) Write(line []byte) (int, error) {
	n, err := w.Writer.Write(line)
	if err != nil && !w.lost {
		w.log.Error("cannot write audit lines: they are lost", "error", err)
	} else if err == nil && w.lost {
		w.log.Error("audit lines are written again")
	}
	w.lost = err != nil
	return n, err
}

func openStore(ctx context.Context, settings Settings) (*store.Etcd, error) {
	if settings.Etcd != nil {
		return store.Dial(settings.Endpoints())
	}
	return store.Open(ctx, settings.DataDir, store.Options{})
}

func (s *service) prepare(ctx context.Context) error {
	if err := s.store.BeginSchema(ctx); err != nil {
		return err
	}
	return beginEpoch(ctx, s.store, s.settings.DataDir)
}

// assemble makes the parts of the program: those that answer requests, and then those that work in
// clusters, which use the former.
func (s *service) assemble(ctx context.Context) error {
	keys, err := seal.Load(s.settings.KeysFile)
	if err != nil {
		return err
	}
	outgoing, err := newOutgoing(s.settings)
	if err != nil {
		return err
	}
	s.client, s.index = outgoing.client, store.NewIndex(s.store)
	authorizer, err := outgoing.authorizer(s.settings, s.index, s.store)
	if err != nil {
		return err
	}
	s.seen = store.NewSeen(s.store, s.index)
	s.health = &health{index: s.index, store: s.store, alive: func() { s.Notify(watchdog) }}
	s.presence = &store.Presence{
		Store: s.store, Name: replicaName(), Now: time.Now, Say: s.say("the row of this process"),
		Process: store.Process{Role: string(s.Role), Version: s.Version, Keys: keys.IDs()},
	}
	credentials := &credential.Service{
		Store: s.store, Keys: keys, Now: time.Now, Lead: s.presence.Lead, Audit: s.audit, Log: s.log,
	}
	metrics, sources := front.NewMetrics(s.registry), outgoing.sources(s.settings)
	if credentials.Delivery, err = s.delivery(keys, outgoing, metrics); err != nil {
		return err
	}
	s.api = &front.API{
		Store: s.store, Index: s.index, Seen: s.seen, Credentials: credentials,
		Authorizer: authorizer, Kubeconfigs: sources, Defaults: s.settings.defaults(),
		Installation: s.settings.Installation, PublicURL: s.settings.PublicURL,
		Endpoints: s.settings.endpoints(), Renderer: s.Version, Now: time.Now, Log: s.log, Audit: s.audit,
		Metrics: metrics, Gate: fair.NewGate(fair.DefaultAtOnce()),
		Quotas: s.settings.Limits.Quotas, Patience: 8 * time.Second,
		Throttle: fair.NewThrottle(fair.DefaultRates(), s.settings.Limits.Exceptions, time.Now),
		Pace:     front.NewPace(s.settings.Polls.PerSecond),
		Waiters: front.NewWaiters(time.Duration(s.settings.Polls.WaitSeconds)*time.Second,
			s.settings.Limits.Connections.Max*3/4), // each waits on a connection of its own
	}
	s.index.Subscribe(s.api.Waiters.Wake)
	if err := credentials.AfterRestore(ctx); err != nil {
		return err
	}
	sources.Ends = kubeconfigEnds(s.registry)
	s.assembleClusters(sources)
	s.tellExpiry(keys)
	s.registry.MustRegister(prometheus.CollectorFunc(s.api.Gauges), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return nil
}

func (s *service) assembleClusters(sources *cluster.Sources) {
	s.membership = store.NewMembership(s.store, s.presence.Name)
	s.membership.Say = s.say("membership")
	s.clusters = &cluster.Manager{
		Store: s.store, Index: s.index, Membership: s.membership, Credentials: s.api.Credentials,
		Source: sources, Installation: s.settings.Installation, TenantID: s.settings.TenantID,
		Defaults: s.api.Defaults, Renderer: s.Version, Dial: cluster.Dial,
		Heard: func(key string) bool {
			return flexnode.HeardLately(s.seen.Last(key), time.Now())
		},
		Log: s.log, Audit: s.audit, Count: clusterEvents(s.registry),
	}
	s.membership.Try = s.clusters.Try
	if s.Role != Front {
		s.api.Kubelets = s.clusters
		s.countCredentials()
	}
}

func (s *service) countCredentials() {
	for _, state := range []string{store.Pending, store.Live, store.Consumed, store.Revoking} {
		s.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "flexnode_rp_credentials",
			Help:        "Credentials of the clusters that this replica owns, by state.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(s.clusters.CountCredentials(state)) }))
	}
}

// tellExpiry registers the expiry of the signing key's certificate as a metric, and warns a month
// before it. The expiry stops no node.
func (s *service) tellExpiry(keys seal.Ring) {
	until, _ := keys.Certified(keys.Keys[0].ID) // it was read before, when the keys were loaded
	if time.Until(until) < 30*24*time.Hour {
		s.log.Warn("the certificate of the signing key ends soon; add and promote another key",
			"key", keys.Keys[0].ID, "ends", until)
	}
	s.tellEnd("signing key", func() time.Time { return until })
}

// tellEnd registers the end of a certificate as a metric.
func (s *service) tellEnd(of string, end func() time.Time) {
	s.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "flexnode_rp_certificate_ends_timestamp_seconds",
		Help:        "When the certificate of the signing key or of a listener ends.",
		ConstLabels: prometheus.Labels{"of": of},
	}, func() float64 { return float64(end().Unix()) }))
}

func kubeconfigEnds(r prometheus.Registerer) func(kubeconfig string, is *x509.Certificate) {
	ends := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "flexnode_rp_kubeconfig_ends_timestamp_seconds",
		Help: "When the client certificate of a kubeconfig ends.",
	}, []string{"kubeconfig"})
	r.MustRegister(ends)
	return func(file string, is *x509.Certificate) {
		if is == nil {
			ends.DeleteLabelValues(file)
		} else {
			ends.WithLabelValues(file).Set(float64(is.NotAfter.Unix()))
		}
	}
}

// replicaName returns a name that is unique to this process.
func replicaName() string {
	name, err := os.Hostname()
	if err != nil {
		name = "replica"
	}
	return fmt.Sprintf("%s-%d-%.8s", strings.ToLower(name), os.Getpid(), uuid.NewString())
}

func (s *service) delivery(
	keys seal.Ring, outgoing outgoing, metrics *front.Metrics,
) (credential.Delivery, error) {
	if b := s.settings.Blob; b != nil {
		key, err := readSecret(b.AccountKeyFile)
		if err != nil {
			return nil, err
		}
		return credential.NewBlobs(s.store, time.Now, b.ContainerURL, b.Account, key, outgoing.options())
	}
	s.handout = &credential.Handout{
		Store: s.store, Keys: keys, PublicURL: s.settings.PublicURL, Now: time.Now,
		Admit: func(ctx context.Context, key string) (func(), time.Duration) {
			return s.api.AdmitDelivery(ctx, key)
		},
		Delivered: func(key, node string, often bool, r *http.Request) {
			metrics.BundleRead()
			level, what := slog.LevelInfo, "configuration handed out"
			if often {
				level, what = slog.LevelWarn, "configuration handed out often: its URL may be stolen"
			}
			s.audit.Log(r.Context(), level, what, "credential", key, "node", node, "from", r.RemoteAddr)
		},
	}
	return s.handout, nil
}

// load fills the index, and stores the defaults, which every revision refers to.
func (s *service) load(ctx context.Context) error {
	_, err := s.store.Update(ctx, "defaults written", nil, func(v *store.View) error {
		return s.store.KeepLayer(v, s.api.Defaults)
	})
	if errors.Is(err, store.ErrFull) { // a change that needs them writes them
		s.log.Warn("the defaults are not stored yet", slog.Any("error", err))
	} else if err != nil {
		return err
	}
	if err := s.index.Load(ctx); err != nil {
		return err
	}
	debug.FreeOSMemory() // used by the load
	return nil
}

// say returns a function that logs errors of work that is retried.
func (s *service) say(what string) func(error) {
	return func(err error) { s.log.Warn(what, slog.Any("error", err)) }
}

// readSecret reads a secret from a file that only its owner may read.
func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("cannot read a secret: %w", err)
	}
	if !seal.Private(path, info.Mode()) {
		return "", fmt.Errorf("cannot use the secret in %s: other users can read it; run `chmod 600 %s`",
			path, path)
	}
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

func clusterEvents(r prometheus.Registerer) (count func(event string)) {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "flexnode_rp_certificate_requests_total",
		Help: "Certificate requests that the provider has decided on, by decision.",
	}, []string{"decision"})
	sessions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "flexnode_rp_cluster_sessions_ended_total",
		Help: "Sessions with a cluster that have ended by a limit or a panic.",
	}, []string{"why"})
	left := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "flexnode_rp_cluster_workers_left_behind_total",
		Help: "Workers of clusters that have not ended in time, such as by a hanging program.",
	})
	r.MustRegister(requests, sessions, left)
	counters := map[string]prometheus.Counter{cluster.LeftBehind: left}
	for event, of := range map[string]*prometheus.CounterVec{
		cluster.Approved: requests, cluster.Denied: requests,
		cluster.Limit: sessions, cluster.Panic: sessions,
	} {
		counters[event] = of.WithLabelValues(event) // starts at 0, so that the first one is an increase
	}
	return func(event string) { counters[event].Inc() }
}
