package kube

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	empty "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"
)

// The errors distinguish a container runtime that serves kubelet, one that does not, one that is
// not ready yet, and none.
func TestRuntime(t *testing.T) {
	stopped := make(chan string, 1)
	answers := func(err error) func(*grpc.Server) {
		answer := func(_ any, _ context.Context, decode func(any) error,
			_ grpc.UnaryServerInterceptor) (any, error) {
			var request empty.HealthCheckRequest // a message with a string as its field 1
			if err := decode(&request); err != nil {
				return nil, err
			}
			stopped <- request.Service
			return &empty.HealthCheckRequest{}, err
		}
		return func(s *grpc.Server) {
			s.RegisterService(&grpc.ServiceDesc{
				ServiceName: "runtime.v1.RuntimeService", HandlerType: (*any)(nil),
				Methods: []grpc.MethodDesc{{MethodName: "Version", Handler: answer},
					{MethodName: "StopPodSandbox", Handler: answer}},
			}, struct{}{})
		}
	}
	serve := func(register func(*grpc.Server)) string {
		socket := filepath.Join(t.TempDir(), "s")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		register(server)
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		t.Cleanup(func() {
			server.Stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return socket
	}
	if err := Runtime(t.Context(), serve(answers(nil))); err != nil || <-stopped != "" {
		t.Errorf("one that serves kubelet: %v", err)
	}
	long := strings.Repeat("abc", 100)
	err := StopSandbox(t.Context(), serve(answers(nil)), long)
	if id := <-stopped; err != nil || id != long {
		t.Errorf("it stops %q: %v", id, err)
	}
	if err := Runtime(t.Context(), serve(func(*grpc.Server) {})); !errors.Is(err,
		ErrNoRuntimeService) {
		t.Errorf("one without CRI: %v", err)
	}
	early := grpcstatus.Error(codes.Unknown, "server is not initialized yet")
	const want = `the container runtime answers 200 OK, status "2": server is not initialized yet`
	if err := Runtime(t.Context(), serve(answers(early))); err == nil || err.Error() != want {
		t.Errorf("one that is not ready: %v, want %s", err, want)
	}
	err = Runtime(t.Context(), filepath.Join(t.TempDir(), "none"))
	if err == nil || errors.Is(err, ErrNoRuntimeService) {
		t.Errorf("none: %v", err)
	}
}

// One that accepts a connection and says nothing hangs, unless the caller has no more time for it.
func TestRuntimeIsSilent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const short = 10 * time.Millisecond
	err = askRuntime(t.Context(), socket, short, "Version", nil)
	if !errors.Is(err, ErrRuntimeSilent) {
		t.Errorf("the error is %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	if err := Runtime(ctx, socket); err == nil || errors.Is(err, ErrRuntimeSilent) {
		t.Errorf("without time, the error is %v", err)
	}
}
