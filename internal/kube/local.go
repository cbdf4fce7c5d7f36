package kube

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// KubeletHealthz is kubelet's default healthz endpoint.
const KubeletHealthz = "http://127.0.0.1:10248/healthz"

const healthzTimeout = 5 * time.Second // bounds the request; kubelet is on this machine

// Healthz requests a healthz endpoint. The error quotes any answer other than 200.
func Healthz(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, healthzTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("cannot ask %s: %w", url, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("cannot ask for health: %w", err) // the error names the URL
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // only to quote it
	if response.StatusCode != http.StatusOK {
		said := strings.Join(strings.Fields(string(body)), " ")
		return fmt.Errorf("%s answers %s: %.240s", url, response.Status, said)
	}
	return nil
}

// ErrNoRuntimeService reports that a container runtime answers but does not serve kubelet:
// containerd runs without its CRI plugin. The text is gRPC's, and that of kubelet's log.
var ErrNoRuntimeService = errors.New("unknown service runtime.v1.RuntimeService")

// ErrRuntimeSilent reports that a container runtime accepts the request but does not answer.
var ErrRuntimeSilent = errors.New("it does not answer in time")

const (
	runtimeTimeout = 4 * time.Second // bounds a request for the version; two of them fit into a check
	stopTimeout    = 2 * time.Minute // bounds a request to stop a sandbox, as in kubelet
)

// The gRPC status codes that matter here (gRPC's doc/statuscodes.md).
const grpcOK, grpcUnimplemented = "0", "12"

// Runtime requests the version of the container runtime at a unix socket, as kubelet first does
// (k8s.io/cri-api, runtime.v1.RuntimeService), and checks only that it answers.
func Runtime(ctx context.Context, socket string) error {
	return askRuntime(ctx, socket, runtimeTimeout, "Version", nil)
}

// StopSandbox stops the sandbox of a pod, with its containers; kubelet then makes a new one. It is
// no error if the runtime does not know the sandbox.
func StopSandbox(ctx context.Context, socket, id string) error {
	const field = 1<<3 | 2 // pod_sandbox_id, a string (Protocol Buffers, Encoding)
	message := append(binary.AppendUvarint([]byte{field}, uint64(len(id))), id...)
	return askRuntime(ctx, socket, stopTimeout, "StopPodSandbox", message)
}

// askRuntime makes a request of which only the success matters. gRPC is one request over HTTP/2
// with five bytes before its message: 0 and the length (gRPC's doc/PROTOCOL-HTTP2.md). Its library
// would be many times as large as this.
func askRuntime(
	ctx context.Context, socket string, limit time.Duration, method string, message []byte,
) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, ErrRuntimeSilent)
	defer cancel()
	defer func() {
		if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrRuntimeSilent) {
			err = fmt.Errorf("cannot ask the container runtime: %w", cause)
		}
	}()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("cannot ask the container runtime: %w", err)
	}
	defer conn.Close()
	once := &http.Transport{
		Protocols:   &http.Protocols{},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}
	once.Protocols.SetUnencryptedHTTP2(true)
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	request, _ := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://containerd/runtime.v1.RuntimeService/"+method, bytes.NewReader(body)) // a valid URL
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	response, err := once.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("cannot ask the container runtime: %w", err)
	}
	defer response.Body.Close()
	if _, err := io.CopyN(io.Discard, response.Body, 64<<10); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("cannot read the answer of the container runtime: %w", err)
	}
	of := func(name string) string { // an answer without a message has no trailer
		return cmp.Or(response.Trailer.Get(name), response.Header.Get(name))
	}
	switch status := of("Grpc-Status"); status {
	case grpcOK:
		return nil
	case grpcUnimplemented:
		return ErrNoRuntimeService
	default:
		return fmt.Errorf("the container runtime answers %s, status %q: %.240s", response.Status,
			status, of("Grpc-Message"))
	}
}
