package inspect

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
)

// serviceTimeout bounds a connection to a Service.
const serviceTimeout = 3 * time.Second

// services connects from this machine to the cluster's own Services: to the API server's, and to
// DNS over TCP, at the address that pods are told. It sends nothing.
func services(
	ctx context.Context, h *Node, client *kube.Client, c config.Config,
) (health.Services, error) {
	api, err := client.Service(ctx, "default", "kubernetes")
	if err != nil {
		return health.Services{}, err
	}
	dns, err := client.Service(ctx, "kube-system", "kube-dns")
	if err != nil && !kube.NodeMissing(err) { // DNS may have another name
		return health.Services{}, err
	}
	found := health.Services{DNS: dns.Spec.ClusterIP, Tried: []health.Connection{
		{Service: "default/kubernetes", Address: addressOf(api)},
		{Service: "DNS", Address: net.JoinHostPort(c.Node.Kubelet.DNSServiceIP, "53")},
	}}
	var all sync.WaitGroup
	for i := range found.Tried {
		all.Go(func() { found.Tried[i].Err = connect(ctx, h, found.Tried[i].Address) })
	}
	all.Wait()
	return found, nil
}

// addressOf is where a Service answers.
func addressOf(s corev1.Service) string {
	port := int32(443)
	if len(s.Spec.Ports) > 0 {
		port = s.Spec.Ports[0].Port
	}
	return net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(port)))
}

func connect(ctx context.Context, h *Node, address string) error {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	dial := h.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// WithServices adds whether Services can be reached, where the API server answers.
func WithServices(ctx context.Context, h *Node, c config.Config, at Cluster, e *health.Evidence) {
	if !e.Node.OK() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ClusterTimeout)
	defer cancel()
	client, err := KubeletClient(ctx, h, c, at)
	if err != nil {
		e.Services = health.Answered(health.Services{}, err)
		return
	}
	defer client.Close()
	e.Services = health.Answered(services(ctx, h, client, c))
}
