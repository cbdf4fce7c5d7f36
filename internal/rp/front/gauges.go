package front

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// gauges counts when it is read. None of it walks over nodes.
type gauges struct{ *API }

// Gauges is a collector of what there is: nodes by condition and state, and how the store is.
func (a *API) Gauges() prometheus.Collector { return gauges{a} }

// Describe implements prometheus.Collector.
func (g gauges) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(name, help string, value float64, labels prometheus.Labels) {
		desc := prometheus.NewDesc("flexnode_rp_"+name, help, nil, labels)
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	gauge("index_age_seconds", "How long ago the index has heard of the store.",
		g.Index.Age().Seconds(), nil)
	gauge("index_revision", "The store's revision that the index has reached.",
		float64(g.Index.Revision()), nil)
	waiting := g.Waiters.Count()
	gauge("waiting_polls", "Polls that wait for their nodes to change.", float64(waiting), nil)
	gauge("agents", "Agents that this replica expects to poll again, with those that wait.",
		float64(g.Pace.Agents(g.Now())+waiting), nil)
	count := map[[2]string]int{}
	for key, n := range g.Index.Counts() {
		shown := flexnode.Shown(flexnode.Node{State: key[0]}, nil, nil, nil)
		count[[2]string{shown.Properties.ProvisioningState, cmp.Or(key[1], "Unknown")}] += n
	}
	for key, n := range count {
		gauge("nodes", "Nodes by provisioning state and Ready condition.", float64(n),
			prometheus.Labels{"state": key[0], "ready": key[1]})
	}
	for _, class := range fair.Classes() {
		atOnce, waiting := g.Gate.Load(class)
		of := prometheus.Labels{"class": class.String()}
		gauge("requests_at_once", "Requests that are being answered, by class.",
			float64(atOnce), of)
		gauge("requests_waiting", "Requests that wait for others, by class.", float64(waiting), of)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	health, err := g.Store.Health(ctx)
	writable := 0.0
	if err == nil {
		gauge("store_bytes", "The size of the store's file.", float64(health.Size), nil)
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
