package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/Azure/AKSFlexNode/docs/api"
	"github.com/Azure/AKSFlexNode/internal/rp"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// service is a running provider.
type service struct {
	settings Settings
	log      *slog.Logger
	server   *rp.Server
	registry *prometheus.Registry
	draining atomic.Bool
	// fatal takes what the program cannot go on after.
	fatal chan error
}

// Run serves until ctx ends, and then drains: it says that it is not ready, finishes what it is at, and stores what it has in memory.
func Run(ctx context.Context, settings Settings, out io.Writer) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(settings.LogLevel)); err != nil {
		return err
	}
	s := &service{settings: settings, log: slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})), registry: prometheus.NewRegistry(), fatal: make(chan error, 8)}
	audit, closeAudit, err := openAudit(settings.AuditFile, out)
	if err != nil {
		return err
	}
	defer closeAudit()
	st, closeStore, err := OpenStore(ctx, settings)
	if err != nil {
		return err
	}
	defer closeStore()
	if err := st.Migrate(ctx); err != nil {
		return err
	}
	stopTracing, err := s.assemble(ctx, st, audit)
	if err != nil {
		return err
	}
	defer stopTracing()
	return s.serve(ctx)
}

// OpenStore opens the store that the settings name.
func OpenStore(ctx context.Context, settings Settings) (*store.Store, func(), error) {
	if settings.Etcd != nil {
		client, err := settings.Endpoints().Dial()
		if err != nil {
			return nil, nil, err
		}
		return store.New(client), func() { _ = client.Close() }, nil // what it had to say it has said
	}
	embedded, err := store.Open(ctx, settings.DataDir)
	if err != nil {
		return nil, nil, err
	}
	return store.New(embedded.Client()), func() { _ = embedded.Close() }, nil
}

func openAudit(path string, out io.Writer) (*slog.Logger, func(), error) {
	if path == "" {
		return slog.New(slog.NewJSONHandler(out, nil)), func() {}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open the audit log: %w", err)
	}
	return slog.New(slog.NewJSONHandler(f, nil)), func() { _ = f.Close() }, nil
}

// assemble puts the provider together.
func (s *service) assemble(ctx context.Context, st *store.Store, audit *slog.Logger) (func(), error) {
	keys, err := seal.Load(s.settings.KeysFile)
	if err != nil {
		return nil, err
	}
	outgoing, err := newOutgoing(s.settings)
	if err != nil {
		return nil, err
	}
	s.server = &rp.Server{
		Store: st, Index: st.NewIndex(), Keys: keys, Defaults: s.settings.NodeDefaults, TenantID: s.settings.TenantID, Now: time.Now,
		Log: s.log, Audit: audit, Metrics: rp.NewMetrics(s.registry),
	}
	if s.server.Authorizer, err = outgoing.authorizer(s.settings); err != nil {
		return nil, err
	}
	if s.server.Clusters, err = outgoing.clusters(s.settings); err != nil {
		return nil, err
	}
	if s.server.Bundles, err = s.bundles(st, keys, outgoing, audit); err != nil {
		return nil, err
	}
	s.registry.MustRegister(s.server.Gauges(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	stop, err := s.trace(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.server.Index.Load(ctx); err != nil {
		return nil, err
	}
	debug.FreeOSMemory() // what loading has needed
	return stop, nil
}

func (s *service) bundles(st *store.Store, keys seal.Ring, outgoing outgoing, audit *slog.Logger) (rp.Bundles, error) {
	if b := s.settings.Blob; b != nil {
		key, err := readSecret(b.AccountKeyFile)
		if err != nil {
			return nil, err
		}
		return rp.NewBlobBundles(b.ContainerURL, b.Account, key, outgoing.options())
	}
	return &rp.OwnBundles{Store: st, Keys: keys, PublicURL: s.settings.PublicURL, Now: time.Now, Read: func(key string, r *http.Request) {
		s.server.Metrics.BundleRead()
		audit.Info("configuration handed out", "credential", key, "from", r.RemoteAddr)
	}}, nil
}

// readSecret reads a secret from a file that only its owner may read.
func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("cannot read a secret: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("cannot use the secret in %s: others may read it; chmod 600 %s", path, path)
	}
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

// serve runs listeners and background work until ctx ends or one of them fails.
func (s *service) serve(ctx context.Context) error {
	servers, err := s.open(ctx)
	if err != nil {
		return err
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	background.Go(func() {
		s.server.Index.Follow(work, func(err error) { s.log.Warn("the index", slog.Any("error", err)) })
	})
	background.Go(func() { s.control(work) })
	background.Go(func() { s.flush(work) })
	s.log.Info("serving", "publicURL", s.settings.PublicURL)
	select {
	case <-ctx.Done():
	case err = <-s.fatal:
	}
	s.draining.Store(true)
	if err == nil {
		s.log.Info("draining")
		time.Sleep(time.Duration(s.settings.DrainSeconds) * time.Second)
	}
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	for _, h := range servers {
		err = errors.Join(err, h.Shutdown(shutdown))
	}
	stop()
	background.Wait()
	return errors.Join(err, s.server.FlushSeen(shutdown))
}

// open starts the listeners: never callers with tokens and Resource Manager on the same one.
func (s *service) open(ctx context.Context) ([]*http.Server, error) {
	var servers []*http.Server
	start := func(h http.Handler, address string, l *Listen, clientCA string) error {
		server := newServer(h, s.log)
		if l == nil {
			plain, err := listen(address, nil)
			if err != nil {
				return err
			}
			go func() { s.ended(server.Serve(plain)) }()
		} else {
			config, err := tlsConfig(*l, clientCA)
			if err != nil {
				return err
			}
			secured, err := listen(l.Address, config)
			if err != nil {
				return err
			}
			go func() { s.ended(server.Serve(secured)) }()
		}
		servers = append(servers, server)
		return nil
	}
	if l := s.settings.Listen; l != nil {
		entra, err := newEntra(ctx, s.settings)
		if err != nil {
			return nil, err
		}
		if err := start(s.public(s.server.Direct(entra)), "", l, ""); err != nil {
			return nil, err
		}
	}
	if l := s.settings.ARMListen; l != nil {
		if err := start(s.server.BehindARM(rp.FrontDoor{Names: l.ClientNames}), "", &l.Listen, l.ClientCAFile); err != nil {
			return nil, err
		}
	}
	if s.settings.MetricsAddress != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		s.health(mux)
		if err := start(mux, s.settings.MetricsAddress, nil, ""); err != nil {
			return nil, err
		}
	}
	return servers, nil
}

func (s *service) ended(err error) {
	if !errors.Is(err, http.ErrServerClosed) {
		s.fatal <- err
	}
}

// public is what is at the address that callers and machines come to: the API, configurations, and what tells about both.
func (s *service) public(front http.Handler) http.Handler {
	mux := http.NewServeMux()
	s.health(mux)
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(apidoc.OpenAPI)
	})
	bundles, own := s.server.Bundles.(http.Handler)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/livez" || r.URL.Path == "/readyz" || r.URL.Path == "/openapi.json":
			mux.ServeHTTP(w, r)
		case own && strings.HasPrefix(r.URL.Path, "/configs/"):
			bundles.ServeHTTP(w, r)
		default:
			front.ServeHTTP(w, r)
		}
	})
}

// stale is how old the index may be before this replica says that it is not ready.
const stale = 20 * time.Second

func (s *service) health(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
		defer cancel()
		err := s.server.Store.Alarm(ctx)
		if age := s.server.Index.Age(); age > stale {
			err = errors.Join(err, fmt.Errorf("the store has not been heard of for %s", age.Round(time.Second)))
		}
		if s.draining.Load() {
			err = errors.Join(err, errors.New("draining"))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
}

// control works on clusters, and takes part in the election again when it fell out of it.
func (s *service) control(ctx context.Context) {
	name, err := os.Hostname()
	if err != nil {
		name = "replica"
	}
	for ctx.Err() == nil {
		if err := s.server.Control(ctx, fmt.Sprintf("%s/%d", name, os.Getpid())); err != nil && ctx.Err() == nil {
			s.log.Warn("controllers", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (s *service) flush(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rp.FlushInterval):
			if err := s.server.FlushSeen(ctx); err != nil {
				s.log.Warn("last-seen times are not stored", slog.Any("error", err))
			}
		}
	}
}
