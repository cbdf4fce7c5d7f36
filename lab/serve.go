package lab

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/lab/component"
	"github.com/Azure/AKSFlexNode/lab/images"
	"github.com/Azure/AKSFlexNode/lab/mirror"
)

func imagesComponent() (component.Component, error) { return images.Component() }

func hostsTOML() string { return images.HostsTOML(RegistryURL, "") }

// startServe starts the lab's own servers in the background.
func (l *Lab) startServe(ctx context.Context) error {
	if err := l.background("serve", l.Self, "serve"); err != nil {
		return err
	}
	return until(ctx, time.Minute, "the artifact mirror (see "+l.path("logs", "serve.log")+")",
		func() error {
			_, err := l.Mirror().Artifacts(ctx)
			return err
		})
}

// Mirror returns a client of the artifact mirror's control API.
func (l *Lab) Mirror() mirror.Client {
	return mirror.Client{URL: ControlURL, HTTP: &http.Client{Timeout: 10 * time.Second}}
}

// Serve runs the artifact mirror, the image registry and watchRoutes until ctx ends.
func (l *Lab) Serve(ctx context.Context) error {
	dirs, err := l.build(ctx, ofSystem)
	if err != nil {
		return err
	}
	catalog, err := l.catalog(ctx)
	if err != nil {
		return err
	}
	proxy, err := l.proxyImage(ctx, dirs)
	if err != nil {
		return err
	}
	registry, err := images.New(ctx, dirs["images"], proxy)
	if err != nil {
		return err
	}
	artifacts := mirror.New(catalog)
	control := http.NewServeMux()
	control.Handle("/", artifacts.Control(l.catalog))
	control.Handle("/v2/", registry)
	servers := []*http.Server{
		{Addr: strings.TrimPrefix(MirrorURL, "https://"), Handler: l.withPackages(artifacts),
			TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}},
		{Addr: strings.TrimPrefix(RegistryURL, "http://"), Handler: images.ReadOnly(registry)},
		{Addr: strings.TrimPrefix(ControlURL, "http://"), Handler: control},
	}
	failed := make(chan error, len(servers))
	for _, s := range servers {
		listener, err := net.Listen("tcp", s.Addr)
		if err != nil {
			return fmt.Errorf("cannot serve: %w", err)
		}
		go func() {
			if s.TLSConfig != nil {
				failed <- s.ServeTLS(listener, l.path("pki", "server.crt"), l.path("pki", "server.key"))
			} else {
				failed <- s.Serve(listener)
			}
		}()
	}
	go l.watchRoutes(ctx)
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	for _, s := range servers {
		err = errors.Join(err, s.Close())
	}
	return err
}

// watchRoutes maintains routes to the pod subnets of every Node, so that pods on different machines
// reach each other.
func (l *Lab) watchRoutes(ctx context.Context) {
	known := map[string]string{} // by pod subnet
	for ctx.Err() == nil {
		_ = l.followRoutes(ctx, known) // retry while the API server is down
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// followRoutes sets the routes to present and new Nodes until the watch ends.
func (l *Lab) followRoutes(ctx context.Context, known map[string]string) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	cmd := l.kubectl(ctx, "get", "nodes", "--watch", "-o",
		`jsonpath={.spec.podCIDRs[*]}{" "}{.status.addresses[?(@.type=="InternalIP")].address}{"\n"}`)
	nodes, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var failed error
	lines := bufio.NewScanner(nodes)
	for lines.Scan() {
		err := setRoutes(ctx, routesOf(strings.Fields(lines.Text())), known)
		if failed == nil && err != nil { // a failed route is not reported again: start over soon
			failed = err
			soon := time.AfterFunc(time.Second, end)
			defer soon.Stop()
		}
	}
	end()
	return errors.Join(failed, lines.Err(), cmd.Wait())
}

// setRoutes sets the routes, by pod subnet, that are not known to be set.
func setRoutes(ctx context.Context, routes, known map[string]string) error {
	var errs []error
	for subnet, via := range routes {
		if known[subnet] == via {
			continue
		}
		if _, err := run(ctx, "ip", "route", "replace", subnet, "via", via, "dev", Bridge); err != nil {
			errs = append(errs, err)
			continue
		}
		known[subnet] = via
	}
	return errors.Join(errs...)
}

// routesOf returns the routes to a Node, by pod subnet, from its subnets and addresses.
func routesOf(node []string) map[string]string {
	routes, machine := map[string]string{}, ""
	for _, word := range node {
		if strings.HasPrefix(word, "10.77.0.") {
			machine = word
		}
	}
	for _, word := range node {
		switch {
		case machine == "" || !strings.Contains(word, "/"):
		case strings.Contains(word, ":"):
			routes[word] = sixOf(machine)
		default:
			routes[word] = machine
		}
	}
	return routes
}
