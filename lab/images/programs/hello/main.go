// Hello is the lab's workload. Without arguments it serves HTTP on port 8080 and responds with its
// host name, which in a pod is the pod's name, and the client's address; /stream does not end. For
// kubectl exec, "client URL" fetches a URL and prints the body, "resolve NAME" prints a name's
// addresses, and "hostname" prints the host name. "load URL" loads another hello until it is
// stopped, and prints its counts. "linger DURATION FILE" sleeps and records its start and end, for
// a preStop hook.
package main

import (
	"bufio"
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
	"sync"
	"sync/atomic"
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
	case len(args) == 2 && args[0] == "load":
		load(ctx, args[1])
		return nil
	case len(args) == 3 && args[0] == "linger":
		return linger(args[1], args[2])
	case len(args) == 1 && args[0] == "hostname":
		fmt.Println(name)
		return nil
	}
	return errors.New("usage: hello [client URL | resolve NAME | hostname | load URL | " +
		"linger DURATION FILE]")
}

func serve(ctx context.Context, name string) error {
	answer := func(w http.ResponseWriter, r *http.Request) {
		fmt.Printf("%s %s from %s\n", r.Method, r.URL.Path, r.RemoteAddr)
		fmt.Fprintf(w, "hello from %s to %s\n", name, r.RemoteAddr)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", answer)
	mux.HandleFunc("/stream", stream)
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: 10 * time.Second}
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
	client, err := trusting("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
	if err != nil {
		return err
	}
	resp, err := get(ctx, client, url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(os.Stdout, resp.Body)
	return errors.Join(err, good(resp))
}

// trusting returns a client that trusts the cluster's CA, if the pod has it.
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

// beat is the time between lines of a stream, and between requests.
const beat = 100 * time.Millisecond

// stream writes a line each beat while the client reads.
func stream(w http.ResponseWriter, r *http.Request) {
	lines := time.NewTicker(beat)
	defer lines.Stop()
	for n := 0; ; n++ {
		_, err := fmt.Fprintln(w, n)
		if err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-lines.C:
		}
	}
}

// counts holds the counters of load. A stream that ends or stalls is broken.
type counts struct{ lines, breaks, requests, failures atomic.Int64 }

// load reads a stream of a hello and makes short requests beside it, each over a new connection.
// Once a second it prints its counts.
func load(ctx context.Context, url string) {
	var seen counts
	var all sync.WaitGroup
	all.Go(func() { seen.stream(ctx, url+"/stream") })
	all.Go(func() { seen.request(ctx, url+"/") })
	for every(ctx, time.Second) {
		fmt.Printf("lines=%d breaks=%d requests=%d failures=%d\n", seen.lines.Load(),
			seen.breaks.Load(), seen.requests.Load(), seen.failures.Load())
	}
	all.Wait()
}

// every sleeps. It returns false if ctx has ended.
func every(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

func (c *counts) stream(ctx context.Context, url string) {
	for every(ctx, beat) {
		if err := c.follow(ctx, url); err != nil && ctx.Err() == nil {
			c.breaks.Add(1)
			fmt.Println("break:", err)
		}
	}
}

// follow reads a stream until it breaks.
func (c *counts) follow(ctx context.Context, url string) error {
	const still = 5 * time.Second
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(still, func() { cancel(errors.New("it stands still")) })
	defer watch.Stop()
	resp, err := get(ctx, &http.Client{Transport: &http.Transport{}}, url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := good(resp); err != nil {
		return err
	}
	for lines := bufio.NewScanner(resp.Body); ; c.lines.Add(1) {
		if !lines.Scan() {
			return errors.Join(io.ErrUnexpectedEOF, lines.Err(), context.Cause(ctx))
		}
		watch.Reset(still)
	}
}

func (c *counts) request(ctx context.Context, url string) {
	client := &http.Client{
		Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true},
	}
	for every(ctx, beat) {
		resp, err := get(ctx, client, url)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			err = errors.Join(err, resp.Body.Close(), good(resp))
		}
		if ctx.Err() != nil {
			return
		}
		c.requests.Add(1)
		if err != nil {
			c.failures.Add(1)
			fmt.Println("failure:", err)
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// good returns an error unless the status is 200.
func good(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", resp.Request.URL, resp.Status)
	}
	return nil
}

// linger sleeps in a preStop hook.
func linger(duration, file string) error {
	pause, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, "begin", time.Now().Format(time.RFC3339)); err != nil {
		return err
	}
	time.Sleep(pause)
	if _, err := fmt.Fprintln(f, "end", time.Now().Format(time.RFC3339)); err != nil {
		return err
	}
	return f.Sync()
}
