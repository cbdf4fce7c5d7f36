package front

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// gauges are what is counted when it is asked for. Nothing of it walks over nodes.
type gauges struct {
	api                        *API
	nodes, age, revision, size *prometheus.Desc
	free, writable             *prometheus.Desc
	agents, waiting            *prometheus.Desc
	atOnce, queued             *prometheus.Desc
}

// Gauges is a collector of what there is: nodes by condition and state, and how the store is.
func (a *API) Gauges() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("flexnode_rp_"+name, help, labels, nil)
	}
	return &gauges{
		api:   a,
		nodes: desc("nodes", "Nodes by provisioning state and Ready condition.", "state", "ready"),
		age:   desc("index_age_seconds", "How long ago the index has heard of the store."),
		revision: desc("index_revision",
			"The store's revision that the index has reached."),
		size:     desc("store_bytes", "The size of the store's file."),
		free:     desc("store_free_bytes", "Free bytes of the disk of an embedded store."),
		writable: desc("store_writable", "1 if the store takes writes, as /readyz/write says; else 0."),
		agents: desc("agents",
			"Agents that this replica expects to poll again, with those that wait."),
		waiting: desc("waiting_polls", "Polls that wait for their nodes to change."),
		atOnce:  desc("requests_at_once", "Requests that are being answered, by class.", "class"),
		queued:  desc("requests_waiting", "Requests that wait for others, by class.", "class"),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	x := g.api.Index
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(g.age, x.Age().Seconds())
	gauge(g.revision, float64(x.Revision()))
	waiting := g.api.Waiters.Count()
	gauge(g.waiting, float64(waiting))
	gauge(g.agents, float64(g.api.Pace.Agents(g.api.Now())+waiting))
	count := map[[2]string]int{}
	for key, n := range x.Counts() {
		shown := flexnode.Shown(flexnode.Node{State: key[0]}, nil, nil, nil)
		ready := key[1]
		if ready == "" {
			ready = "Unknown"
		}
		count[[2]string{shown.Properties.ProvisioningState, ready}] += n
	}
	for key, n := range count {
		gauge(g.nodes, float64(n), key[0], key[1])
	}
	for _, class := range fair.Classes() {
		atOnce, waiting := g.api.Gate.Load(class)
		gauge(g.atOnce, float64(atOnce), class.String())
		gauge(g.queued, float64(waiting), class.String())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	health, err := g.api.Store.Health(ctx)
	writable := 0.0
	if err == nil {
		gauge(g.size, float64(health.Size))
		if health.Free >= 0 {
			gauge(g.free, float64(health.Free))
		}
		if !health.Full {
			writable = 1
		}
	}
	gauge(g.writable, writable)
}
