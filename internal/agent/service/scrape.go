package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/metrics"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Metrics are the numbers that the service offers. docs/operations.md lists them.
func (l *Live) Metrics() []metrics.Family {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(l.ofTheNode(), l.ofTheService()...)
}

// sample is one with labels in turn.
func sample(value float64, labels ...string) metrics.Sample {
	return metrics.Sample{Labels: labels, Value: value}
}

// seconds is a time as Prometheus has it; nothing for none.
func seconds(at time.Time, labels ...string) []metrics.Sample {
	if at.IsZero() {
		return nil
	}
	return []metrics.Sample{sample(float64(at.Unix()), labels...)}
}

// counted are the samples of counters with one label.
func counted(label string, by map[string]int) []metrics.Sample {
	var list []metrics.Sample
	for _, value := range slices.Sorted(maps.Keys(by)) {
		list = append(list, sample(float64(by[value]), label, value))
	}
	return list
}

// ofTheNode is what the last check has found.
func (l *Live) ofTheNode() []metrics.Family {
	s := l.status
	if s == nil {
		return nil
	}
	var conditions, certificates, underWay []metrics.Sample
	for _, c := range s.Conditions {
		for _, status := range []health.Status{health.True, health.False, health.Unknown} {
			value := 0.0
			if c.Status == status {
				value = 1
			}
			conditions = append(conditions,
				sample(value, "type", c.Type, "status", strings.ToLower(string(status))))
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
	total := []metrics.Sample{sample(float64(len(s.Drift)))}
	return []metrics.Family{
		{Name: "aks_flex_node_condition", Type: metrics.Gauge, Samples: conditions,
			Help: "Whether a condition of the node has a status (true, false, unknown)."},
		{Name: "aks_flex_node_drifted", Type: metrics.Gauge, Samples: total,
			Help: "Things that are not as they were applied."},
		{Name: "aks_flex_node_drifted_by_kind", Type: metrics.Gauge, Samples: counted("kind", drift),
			Help: "Things that are not as they were applied, by their kind."},
		{Name: "aks_flex_node_repair_budget_exhausted", Type: metrics.Gauge,
			Samples: []metrics.Sample{sample(float64(len(l.work.Exhausted)))},
			Help:    "Things that drifted too often and are no longer repaired for now."},
		{Name: "aks_flex_node_certificate_expiry_timestamp_seconds", Type: metrics.Gauge,
			Samples: certificates, Help: "When a certificate of kubelet expires."},
		{Name: "aks_flex_node_transition_start_time_seconds", Type: metrics.Gauge, Samples: underWay,
			Help: "Since when a transition is under way; absent while there is none."},
		{Name: "aks_flex_node_configuration_info", Type: metrics.Gauge,
			Samples: []metrics.Sample{sample(1, "generation", fmt.Sprintf("%.12s", s.Generation),
				"version", s.ConfigVersion, "kubernetes", s.Kubernetes)},
			Help: "The configuration that the node runs on."},
	}
}

// ofTheService is what the service has done since it began.
func (l *Live) ofTheService() []metrics.Family {
	var ends, took []metrics.Sample
	byEnd := func(a, b ended) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.result, b.result))
	}
	count := map[string]int{}
	for _, e := range slices.SortedFunc(maps.Keys(l.tally.transitions), byEnd) {
		n := l.tally.transitions[e]
		ends = append(ends, sample(float64(n), "kind", string(e.kind), "result", e.result))
		count[string(e.kind)] += n
	}
	for _, kind := range slices.Sorted(maps.Keys(l.tally.took)) {
		labels := []string{"kind", string(kind)}
		took = append(took,
			metrics.Sample{Suffix: "_sum", Labels: labels, Value: l.tally.took[kind].Seconds()},
			metrics.Sample{Suffix: "_count", Labels: labels, Value: float64(count[string(kind)])})
	}
	var polled []metrics.Sample
	if p := l.work.Polls; p != nil {
		polled = seconds(p.Last)
	}
	return []metrics.Family{
		{Name: "aks_flex_node_build_info", Type: metrics.Gauge,
			Samples: []metrics.Sample{sample(1, "version", l.work.Version, "goversion",
				runtime.Version())},
			Help: "The program."},
		{Name: "aks_flex_node_start_time_seconds", Type: metrics.Gauge,
			Samples: seconds(l.work.Started), Help: "When the service began."},
		{Name: "aks_flex_node_checks_total", Type: metrics.Counter,
			Samples: counted("result", l.tally.checks), Help: "Checks of the node, by result."},
		{Name: "aks_flex_node_last_check_timestamp_seconds", Type: metrics.Gauge,
			Samples: seconds(l.work.Checked), Help: "When the node was checked last."},
		{Name: "aks_flex_node_drift_events_total", Type: metrics.Counter,
			Samples: counted("kind", l.tally.events), Help: "Things that were found to drift, by kind."},
		{Name: "aks_flex_node_repairs_total", Type: metrics.Counter,
			Samples: counted("kind", l.tally.repairs), Help: "Things that were repaired, by kind."},
		{Name: "aks_flex_node_polls_total", Type: metrics.Counter,
			Samples: counted("result", l.tally.polls), Help: "Polls of the provider, by result."},
		{Name: "aks_flex_node_last_poll_timestamp_seconds", Type: metrics.Gauge, Samples: polled,
			Help: "When the provider was asked last."},
		{Name: "aks_flex_node_transitions_total", Type: metrics.Counter, Samples: ends,
			Help: "Transitions that have ended, by kind and result."},
		{Name: "aks_flex_node_transition_duration_seconds", Type: metrics.Summary, Samples: took,
			Help: "How long transitions took, by kind."},
	}
}

// textType is the media type of the text format.
const textType = "text/plain; version=0.0.4; charset=utf-8"

// metricsAt is what is at a path of the metrics' address.
func (l *Live) metricsAt(path string) (kind string, body []byte) {
	if path != "/metrics" {
		return "", nil
	}
	return textType, metrics.Text(l.Metrics())
}

// scraped is where the metrics are served, as it was configured last.
type scraped struct {
	address string
	server  *answering
	// file is the one that they were written to last.
	file string
}

// serveMetrics serves the metrics at an address, "" for nowhere, and no longer at another one.
func (l *Live) serveMetrics(address string) error {
	if address == l.scraped.address {
		return nil
	}
	l.closeMetrics()
	if address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("cannot serve metrics: %w", err)
	}
	l.scraped.address, l.scraped.server = address, answer(listener, l.metricsAt)
	return nil
}

// Close serves nothing any more. The worker has ended.
func (l *Live) Close() { l.closeMetrics() }

func (l *Live) closeMetrics() {
	if l.scraped.server != nil {
		l.scraped.server.close()
		l.scraped.address, l.scraped.server = "", nil
	}
}

// publishMetrics serves the metrics and writes them to a file, as the node's configuration says.
func publishMetrics(ctx context.Context, w *Watcher, h *change.Home) error {
	if w.Live == nil || h.Saved.Applied == nil {
		return nil
	}
	is := h.Saved.Applied.Config.Agent.Metrics
	err := w.Live.serveMetrics(is.Listen)
	if former := w.Live.scraped.file; former != "" && former != is.Textfile {
		err = errors.Join(err, change.RemoveMetrics(ctx, h, former))
	}
	if w.Live.scraped.file = is.Textfile; is.Textfile == "" {
		return err
	}
	dir, dirErr := h.Agent.Machine.Observe(ctx, state.PathKey(path.Dir(is.Textfile)))
	if _, ok := dir.(state.Dir); !ok || dirErr != nil {
		return errors.Join(err, fmt.Errorf("cannot write %s: there is no such directory", is.Textfile))
	}
	text := state.NewFile(is.Textfile, 0o644, string(metrics.Text(w.Live.Metrics())))
	return errors.Join(err, h.Agent.Machine.Set(ctx, state.Change{To: text}, nil))
}
