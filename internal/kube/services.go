package kube

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// serviceTimeout bounds a connection to a Service.
const serviceTimeout = 3 * time.Second

// Services holds the results of connecting to the cluster's own Services from the machine.
type Services struct {
	Tried []Connection
	// DNS is the address of the cluster's DNS Service; "" when it is not known.
	DNS string
}

// Connection is an attempt to connect to a Service.
type Connection struct {
	// Service is its name, Address its ClusterIP and port.
	Service, Address string
	Err              error
}

// TryServices connects from this machine to the cluster's own Services: to the API server's, and to
// DNS over TCP, at the address that pods get. It sends nothing. A dial that is nil is the network.
func (c *Client) TryServices(
	ctx context.Context, dns string, dial Dial,
) (Services, error) {
	api, err := c.Service(ctx, "default", "kubernetes")
	if err != nil {
		return Services{}, err
	}
	names, err := c.Service(ctx, "kube-system", "kube-dns")
	if err != nil && !NodeMissing(err) { // DNS may have another name
		return Services{}, err
	}
	found := Services{DNS: names.Spec.ClusterIP, Tried: []Connection{
		{Service: "default/kubernetes", Address: addressOf(api)},
		{Service: "DNS", Address: net.JoinHostPort(dns, "53")},
	}}
	var all sync.WaitGroup
	for i := range found.Tried {
		all.Go(func() { found.Tried[i].Err = connect(ctx, dial, found.Tried[i].Address) })
	}
	all.Wait()
	return found, nil
}

// addressOf returns where a Service answers.
func addressOf(s corev1.Service) string {
	port := int32(443)
	if len(s.Spec.Ports) > 0 {
		port = s.Spec.Ports[0].Port
	}
	return net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(port)))
}

func connect(ctx context.Context, dial Dial, address string) error {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
