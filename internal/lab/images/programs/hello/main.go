// Hello is the lab's workload. Without arguments it answers every HTTP request on port 8080 with
// its host name, which in a pod is the pod's name, and with the address that asks. "client URL"
// fetches a URL and prints what came, "resolve NAME" prints the addresses of a name, "hostname"
// prints the host name, for kubectl exec.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	switch {
	case len(args) == 0:
		return serve(ctx, name)
	case len(args) == 2 && args[0] == "client":
		return fetch(ctx, args[1])
	case len(args) == 2 && args[0] == "resolve":
		return resolve(ctx, args[1])
	case len(args) == 1 && args[0] == "hostname":
		fmt.Println(name)
		return nil
	}
	return errors.New("usage: hello [client URL | resolve NAME | hostname]")
}

func serve(ctx context.Context, name string) error {
	answer := func(w http.ResponseWriter, r *http.Request) {
		fmt.Printf("%s %s from %s\n", r.Method, r.URL.Path, r.RemoteAddr)
		fmt.Fprintf(w, "hello from %s to %s\n", name, r.RemoteAddr)
	}
	server := &http.Server{Addr: ":8080", Handler: http.HandlerFunc(answer), ReadHeaderTimeout: 10 * time.Second}
	done := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer done()
	fmt.Printf("hello from %s, listening on %s\n", name, server.Addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func fetch(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client, err := trusting("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, resp.Status)
	}
	return nil
}

// trusting is a client that trusts the cluster's CA, where it is given to the pod.
func trusting(ca string) (*http.Client, error) {
	text, err := os.ReadFile(ca)
	if errors.Is(err, fs.ErrNotExist) {
		return http.DefaultClient, nil
	}
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", ca)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	return &http.Client{Transport: transport}, nil
}

func resolve(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(addresses, " "))
	return nil
}
