package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/metrics"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Limits of a request: the time for it and for its answer, and the size of its header.
const answerWithin, maxHeader = 5 * time.Second, 8 << 10

// serve serves the metrics, and work if not nil, on a listener, until the server is closed.
func (l *Live) serve(on net.Listener, work http.HandlerFunc) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(metrics.Text(l.Metrics())) // the client may be gone
	})
	if work != nil {
		mux.HandleFunc("GET /work", work)
	}
	server := &http.Server{
		ReadTimeout: answerWithin, WriteTimeout: answerWithin, MaxHeaderBytes: maxHeader, Handler: mux,
	}
	server.SetKeepAlivesEnabled(false)
	go func() { _ = server.Serve(on) }() // ends with Close
	return server
}

// Tell serves the socket until ctx ends: /work is the Work as JSON, /metrics the metrics.
func (l *Live) Tell(ctx context.Context, a *change.Agent) error {
	socket := a.Path(inspect.SocketFile)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the old socket: %w", err)
	}
	listener, err := net.Listen("unix", socket) // in a directory of mode 0700
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	server := l.serve(listener, func(w http.ResponseWriter, _ *http.Request) {
		work := l.Work()
		if work.Polls != nil {
			polls := *work.Polls
			polls.Received = a.Records().BundleResource().ConfigVersion
			polls.Applied = inspect.Source(&a.Env).Applied.ConfigVersion
			if bundle, err := a.Records().Bundle(); err == nil && bundle != nil {
				proof, _, _ := follow.Verify(bundle, config.JoiningOf(bundle).Root)
				polls.Signed, polls.Certified = proof.Signed, proof.Until
			}
			work.Polls = &polls
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(work) // the client may be gone
	})
	defer server.Close()
	if err := os.Chmod(socket, 0o600); err != nil {
		return fmt.Errorf("cannot protect %s: %w", socket, err)
	}
	<-ctx.Done()
	return nil
}

// Metrics returns the metrics of the service. docs/reference/metrics.md lists them.
func (l *Live) Metrics() (list []metrics.Family) {
	l.update(func() { list = append(l.ofTheNode(), l.ofTheService()...) })
	return list
}

func family(kind, name, help string, samples ...metrics.Sample) metrics.Family {
	return metrics.Family{Name: "aks_flex_node_" + name, Type: kind, Help: help, Samples: samples}
}

func gauge(name, help string, samples ...metrics.Sample) metrics.Family {
	return family(metrics.Gauge, name, help, samples...)
}

func (l *Live) counted(kind, name, help string) metrics.Family {
	return family(kind, name, help, slices.Clone(l.counts[name])...)
}

func sample(value float64, labels ...string) metrics.Sample {
	return metrics.Sample{Labels: labels, Value: value}
}

// seconds returns a time in Prometheus's format; nothing for the zero time.
func seconds(at time.Time, labels ...string) []metrics.Sample {
	if at.IsZero() {
		return nil
	}
	return []metrics.Sample{sample(float64(at.Unix()), labels...)}
}

func (l *Live) ofTheNode() []metrics.Family {
	s := l.status
	if s == nil {
		return nil
	}
	var conditions, certificates, drifted, underWay []metrics.Sample
	for _, c := range s.Conditions {
		advice := strconv.FormatBool(c.Advises())
		for _, status := range []health.Status{health.True, health.False, health.Unknown} {
			value := 0.0
			if c.Status == status {
				value = 1
			}
			conditions = append(conditions,
				sample(value, "type", c.Type, "status", strings.ToLower(string(status)), "advice", advice))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Certificates)) {
		certificates = append(certificates, seconds(s.Certificates[name], "certificate", name)...)
	}
	if t := s.Transition; t != nil {
		underWay = seconds(t.Began, "kind", string(t.Kind), "phase", string(t.Phase))
	}
	drift := map[string]int{}
	for _, d := range s.Drift {
		drift[inspect.KindOf(string(d.Key))]++
	}
	for _, kind := range slices.Sorted(maps.Keys(drift)) {
		drifted = append(drifted, sample(float64(drift[kind]), "kind", kind))
	}
	return []metrics.Family{
		gauge("condition", "Whether a condition of the node has a status (true, false, unknown).",
			conditions...),
		gauge("drifted", "Things that are not as they were applied.", sample(float64(len(s.Drift)))),
		gauge("drifted_by_kind", "Things that are not as they were applied, by their kind.", drifted...),
		gauge("repair_budget_exhausted",
			"Things that drifted too often and are no longer repaired for now.",
			sample(float64(len(l.work.Exhausted)))),
		gauge("certificate_expiry_timestamp_seconds",
			"When a certificate of kubelet, or the service principal's credential, expires.",
			certificates...),
		gauge("transition_start_time_seconds",
			"Since when a transition is under way; absent without one.", underWay...),
		gauge("configuration_info", "The configuration that the node runs on.",
			sample(1, "generation", fmt.Sprintf("%.12s", s.Generation), "version", s.ConfigVersion,
				"kubernetes", s.Kubernetes)),
	}
}

func (l *Live) ofTheService() []metrics.Family {
	polls := cmp.Or(l.work.Polls, &health.Polls{})
	return []metrics.Family{
		gauge("build_info", "The program.",
			sample(1, "version", l.work.Version, "goversion", runtime.Version())),
		gauge("start_time_seconds", "When the service began.", seconds(l.work.Started)...),
		gauge("last_check_timestamp_seconds", "When the node was checked last.",
			seconds(l.work.Checked)...),
		gauge("last_poll_timestamp_seconds", "When the provider was asked last.",
			seconds(polls.Last)...),
		l.counted(metrics.Counter, "checks_total", "Checks of the node, by result."),
		l.counted(metrics.Counter, "drift_events_total", "Things that were found to drift, by kind."),
		l.counted(metrics.Counter, "repairs_total", "Things that were repaired, by kind."),
		l.counted(metrics.Counter, "polls_total", "Polls of the provider, by result."),
		l.counted(metrics.Counter, "transitions_total",
			"Transitions that have ended, by kind and result."),
		l.counted(metrics.Summary, "transition_duration_seconds", "How long transitions took, by kind."),
	}
}

// serveMetrics serves the metrics at an address, "" for none, and stops serving at the old one.
func (l *Live) serveMetrics(address string) error {
	if address == l.address {
		return nil
	}
	l.Close()
	if address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("cannot serve metrics: %w", err)
	}
	l.address, l.server = address, l.serve(listener, nil)
	return nil
}

// Close stops serving metrics. Only the worker may call it, or others after its end.
func (l *Live) Close() {
	if l.server != nil {
		l.server.Close()
		l.address, l.server = "", nil
	}
}

func publishMetrics(ctx context.Context, l *Live, h *change.Home) error {
	if h.Saved.Applied == nil {
		return nil
	}
	is := h.Saved.Applied.Config.Agent.Metrics
	err := l.serveMetrics(is.Listen)
	if l.file != is.Textfile {
		err = errors.Join(err, change.RemoveMetrics(ctx, h, l.file))
	}
	if l.file = is.Textfile; l.file == "" {
		return err
	}
	text := state.NewFile(l.file, 0o644, string(metrics.Text(l.Metrics())))
	return errors.Join(err, h.Agent.Machine.Set(ctx, state.Change{To: text}, nil))
}
