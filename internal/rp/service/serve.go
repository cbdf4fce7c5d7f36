package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	apidoc "github.com/Azure/AKSFlexNode/docs/api"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/front"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// The messages to the service manager (sd_notify(3)).
const (
	ready    = "READY=1\nSTATUS=serving"
	stopping = "STOPPING=1\nSTATUS=draining"
	watchdog = "WATCHDOG=1"
)

// serve runs listeners and background work until ctx or one of them ends; it ends requests first.
func (s *service) serve(ctx context.Context) error {
	servers, err := s.open(ctx)
	if err != nil {
		return err
	}
	s.log.Info("serving", "publicURL", s.settings.PublicURL, "role", s.Role)
	s.Notify(ready) // before work, whose first health check is reported, too
	calm := context.WithoutCancel(ctx)
	stopWork := s.work(calm)
	select {
	case <-ctx.Done():
	case err = <-s.fatal:
	}
	s.health.draining.Store(true)
	s.api.Waiters.End()
	s.Notify(stopping)
	if err == nil && s.Role != Controller { // controllers get no requests
		s.log.Info("draining")
		s.drain()
		s.arrivals.wait()
	}
	end, cancel := context.WithTimeout(calm, 30*time.Second) // for requests and the last writes
	defer cancel()
	for _, h := range servers {
		err = errors.Join(err, h.Shutdown(end))
	}
	return errors.Join(err, stopWork(end))
}

// work starts the background work. stop ends it in the order of dependencies: the work in clusters,
// then the membership that it needs, then the work that follows the store.
func (s *service) work(ctx context.Context) (stop func(context.Context) error) {
	stopFollowing := background(ctx, "following the store", s.follow)
	stopOwning := func(context.Context) error { return nil }
	if s.Role != Front {
		stopMembership := background(ctx, "the membership", s.membership.Run)
		stopClusters := background(ctx, "the work in clusters", s.clusters.Run)
		stopOwning = func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 4*store.OwnerMargin) // some is left for the rest
			defer cancel()
			return errors.Join(stopClusters(ctx), stopMembership(ctx))
		}
	}
	return func(ctx context.Context) error {
		return errors.Join(stopOwning(ctx), s.seen.Flush(ctx), stopFollowing(ctx))
	}
}

// background calls do in a goroutine. stop cancels it, and waits for it at most until its own
// context ends.
func background(ctx context.Context, what string, do func(context.Context)) (
	stop func(context.Context) error,
) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(ctx)
	}()
	return func(ctx context.Context) error {
		cancel()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("cannot stop %s in time: %w", what, ctx.Err())
		}
	}
}

// follow keeps this replica's copies of the store up to date, and maintains the store.
func (s *service) follow(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { s.index.Follow(ctx, s.say("the index")) })
	running.Go(func() { s.seen.Run(ctx, s.say("when nodes were seen")) })
	running.Go(func() { s.store.KeepCompacted(ctx, s.say("compaction")) })
	running.Go(func() { s.presence.Run(ctx) })
	running.Go(func() { s.health.run(ctx) })
	running.Go(func() { s.collect(ctx) })
	running.Go(func() {
		for ctx.Err() == nil {
			polled := s.presence.Live(string(All)) + s.presence.Live(string(Front))
			s.api.Pace.Expect(s.seen.Share(polled))
			store.Pause(ctx, 5*time.Second)
		}
	})
	running.Go(func() {
		if err := s.store.WaitForNewer(ctx); err != nil {
			s.fatal <- err
		}
	})
	running.Wait()
}

// open starts the listeners: those for callers with tokens and for Resource Manager are separate.
func (s *service) open(ctx context.Context) (servers []*http.Server, err error) {
	start := func(h http.Handler, l Listen, clientCA string) {
		if err == nil {
			var server *http.Server
			server, err = s.start(h, l, clientCA)
			servers = append(servers, server)
		}
	}
	if l := s.settings.Listen; l != nil && s.Role != Controller {
		a := s.settings.Authentication
		entra, err := front.NewEntra(ctx, a.Issuers, a.Audiences, s.client, time.Now)
		if err != nil {
			return nil, err
		}
		start(s.public(s.api.Direct(entra)), *l, "")
	}
	if l := s.settings.ARMListen; l != nil && s.Role != Controller {
		start(s.api.BehindARM(front.ManagerCertificate(l.ClientNames)), l.Listen, l.ClientCAFile)
	}
	if address := s.settings.MetricsAddress; address != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
		s.health.routes(mux)
		start(mux, Listen{Address: address}, "")
	}
	if address := s.settings.DebugAddress; address != "" {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		start(mux, Listen{Address: address}, "")
	}
	return servers, err
}

// start serves at an address, with TLS if there is a certificate for it.
func (s *service) start(h http.Handler, l Listen, clientCA string) (*http.Server, error) {
	bounds := s.settings.Limits.Connections
	server := newServer(s.leave(h), s.log, usualPatience)
	connections := &fair.Connections{Max: bounds.Max, PerAddress: bounds.PerAddress}
	server.ConnState = func(c net.Conn, state http.ConnState) {
		s.arrivals.connections.Delete(c)
		if state == http.StateNew {
			s.arrivals.connections.Store(c, struct{}{})
		}
		connections.State(c, state)
	}
	config, err := tlsConfig(l, clientCA)
	if err != nil {
		return nil, err
	}
	if config != nil {
		present := config.GetConfigForClient // listen replaces it
		s.tellEnd(l.Address, func() time.Time {
			now, _ := present(nil) // tlsConfig has read it before
			return now.Certificates[0].Leaf.NotAfter
		})
	}
	listener, err := listen(l.Address, config, connections, usualPatience)
	if err != nil {
		return nil, err
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.fatal <- err
		}
	}()
	return server, nil
}

// public returns the handler for callers and machines: the API, configurations, health, document.
func (s *service) public(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	s.health.routes(mux)
	const document = "/openapi.json"
	mux.HandleFunc("GET "+document, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(apidoc.OpenAPI) // a client that has gone will retry
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case healthPaths[r.URL.Path] || r.URL.Path == document:
			mux.ServeHTTP(w, r)
		case s.handout != nil && strings.HasPrefix(r.URL.Path, credential.HandoutPath):
			s.handout.ServeHTTP(w, r)
		default:
			api.ServeHTTP(w, r)
		}
	})
}
