package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
)

// follow joins a machine with a configuration URL, so that it follows the lab's provider as a
// service principal.
func (c *command) follow(ctx context.Context, m lab.Machine, program string) error {
	if err := c.lab.Install(m, program); err != nil {
		return err
	}
	if _, err := c.lab.Output(ctx, m, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	who, err := c.lab.Azure()
	if err != nil {
		return err
	}
	type object = map[string]any
	path := nodeID(m) + "?configUrl=true&acceptOldCertificate=true"
	status, text, err := c.lab.ARM(ctx, http.MethodPut, lab.AzureURL, path,
		lab.ProviderAPI, object{"properties": object{
			"continuousMonitoring": true, "monitoring": object{"endpoint": lab.ProviderURL},
			"versions": c.versions.Desired(),
			"azureAuth": object{"method": "servicePrincipal", "servicePrincipal": object{
				"clientId": who.Node.ClientID, "clientSecret": who.Node.Secret,
				"clientTenant": lab.Tenant}},
		}})
	if err != nil {
		return err
	}
	var answer struct{ Properties struct{ ConfigURL string } }
	err = json.Unmarshal([]byte(text), &answer)
	if err != nil || answer.Properties.ConfigURL == "" {
		return fmt.Errorf("cannot get a configuration URL: %d %s", status, text)
	}
	join, err := c.lab.Command(ctx, m, "aks-flex-node", "agent", "--config-url-file", "-")
	if err != nil {
		return err
	}
	join.Stdin = strings.NewReader(answer.Properties.ConfigURL)
	if out, err := join.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot join by a configuration URL: %w\n%s", err, out)
	}
	return nil
}

func nodeID(m lab.Machine) string { return lab.ClusterID + "/flexNodeConfig/" + m.Name }

// unfollow deletes the flexNodeConfig of a machine.
func (c *command) unfollow(ctx context.Context, m lab.Machine) error {
	status, text, err := c.lab.ARM(ctx, http.MethodDelete, lab.AzureURL, nodeID(m),
		lab.ProviderAPI, nil)
	if err == nil && status >= 400 {
		err = fmt.Errorf("cannot delete %s: %d %s", nodeID(m), status, text)
	}
	return err
}

// traffic is the daemon's traffic with the provider.
type traffic struct {
	// connection is the local address of the connection.
	connection string
	// bytes is TCP's payload in both directions, including TLS; polls counts polls without a change.
	bytes, polls int64
}

// traffic reads the bytes exchanged over the daemon's connection to the provider from the kernel
// (ss(8)), and the number of polls from the daemon's metrics.
func (c *command) traffic(ctx context.Context, m lab.Machine) (traffic, error) {
	const script = `ss -tinHO state established dst %s
printf 'GET /metrics HTTP/1.0\r\n\r\n' | socat -t 5 - UNIX-CONNECT:/run/aks-flex-node/agent.sock`
	at := strings.TrimPrefix(lab.ProviderURL, "https://")
	out, err := c.lab.Output(ctx, m, "bash", "-c", fmt.Sprintf(script, at))
	if err != nil {
		return traffic{}, err
	}
	var t traffic
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		const polls = `aks_flex_node_polls_total{result="unchanged"}`
		switch {
		case len(fields) == 2 && fields[0] == polls:
			t.polls, err = strconv.ParseInt(fields[1], 10, 64)
		case len(fields) > 4 && strings.Contains(line, "bytes_received:"):
			if t.connection != "" {
				return t, errors.New("the daemon has more than one connection to the provider")
			}
			t.connection = fields[2]
			t.bytes, err = exchanged(fields)
		}
		if err != nil {
			return t, fmt.Errorf("cannot read the daemon's traffic: %w", err)
		}
	}
	if t.connection == "" || t.polls == 0 {
		return t, fmt.Errorf("the daemon has no connection to the provider, or has not polled:\n%s",
			out)
	}
	return t, nil
}

// firstTraffic returns the traffic after the first poll without a change.
func (c *command) firstTraffic(ctx context.Context, m lab.Machine) (traffic, error) {
	const tries, pause = 24, 5 * time.Second
	for try := 1; ; try++ {
		t, err := c.traffic(ctx, m)
		if err == nil || try == tries {
			return t, err
		}
		select {
		case <-ctx.Done():
			return t, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// exchanged returns the sum of bytes sent and received in a line of ss.
func exchanged(fields []string) (sum int64, err error) {
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ":")
		if name != "bytes_sent" && name != "bytes_received" {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// perPoll returns the bytes of an unchanged poll.
func perPoll(before, after traffic) (float64, error) {
	if before.connection != after.connection {
		return 0, fmt.Errorf("the daemon has not kept its connection: %s became %s",
			before.connection, after.connection)
	}
	if after.polls == before.polls {
		return 0, errors.New("the daemon has not polled; measure for longer")
	}
	return float64(after.bytes-before.bytes) / float64(after.polls-before.polls), nil
}
