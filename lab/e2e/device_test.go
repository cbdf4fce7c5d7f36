package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/images"
)

// device is a resource of which a node has one.
const device = "lab.flexnode.test/device"

// devicePlugin is a device plugin as vendors write them (k8s.io/kubelet, deviceplugin/v1beta1). It
// registers with kubelet, and again after a restart of kubelet, which removes the sockets. It runs
// in the test and uses the machine's directory from outside.
type devicePlugin struct {
	dir           string
	registrations atomic.Int32
}

// raw is a codec for hand-written messages: there are six, of a few bytes each.
type raw struct{}

func (raw) Name() string                  { return "proto" }
func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// text encodes a field of a message: a string, or a message itself.
func text(number byte, content string) string {
	return string([]byte{number<<3 | 2, byte(len(content))}) + content
}

// startDevicePlugin runs a plugin on a machine until the end of the test.
func startDevicePlugin(t *testing.T, m lab.Machine) *devicePlugin {
	t.Helper()
	p := &devicePlugin{dir: filepath.Join(m.Root, "var/lib/kubelet/device-plugins")}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = p.serve(ctx) // kubelet is down or was restarted: retry
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return p
}

const ownSocket, kubeletSocket = "lab.sock", "kubelet.sock"

// serve registers with kubelet and serves it until it stops.
func (p *devicePlugin) serve(ctx context.Context) error {
	_ = os.Remove(filepath.Join(p.dir, ownSocket)) // the previous socket
	listener, err := net.Listen("unix", filepath.Join(p.dir, ownSocket))
	if err != nil {
		return err
	}
	gone := make(chan struct{})
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return respond(s, gone) }))
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	client, err := grpc.NewClient("unix:"+filepath.Join(p.dir, kubeletSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer client.Close()
	request := []byte(text(1, "v1beta1") + text(2, ownSocket) + text(3, device))
	err = client.Invoke(ctx, "/v1beta1.Registration/Register", &request, new([]byte),
		grpc.ForceCodec(raw{}))
	if err != nil {
		return err
	}
	p.registrations.Add(1)
	select {
	case <-ctx.Done():
	case <-gone:
	}
	return nil
}

// respond responds to a call from kubelet. gone is closed when kubelet no longer watches the
// devices.
func respond(s grpc.ServerStream, gone chan struct{}) error {
	method, _ := grpc.MethodFromServerStream(s)
	if err := s.RecvMsg(new([]byte)); err != nil {
		return err
	}
	var message string
	switch method {
	case "/v1beta1.DevicePlugin/GetDevicePluginOptions":
	case "/v1beta1.DevicePlugin/ListAndWatch":
		message = text(1, text(1, "one")+text(2, "Healthy"))
	case "/v1beta1.DevicePlugin/Allocate": // an environment variable for the only container
		message = text(1, text(1, text(1, "LAB_DEVICE")+text(2, "one")))
	default:
		return fmt.Errorf("cannot answer %s", method)
	}
	answer := []byte(message)
	if err := s.SendMsg(&answer); err != nil || !strings.HasSuffix(method, "/ListAndWatch") {
		return err
	}
	<-s.Context().Done()
	close(gone)
	return nil
}

// withDevice is a pod that requests the device.
const withDevice = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 1
  containers:
  - name: hello
    image: "%[3]s"
    resources: {limits: {"` + device + `": 1}}
`

// runWithDevice waits until a node has the device, and runs a pod with it.
func runWithDevice(t *testing.T, m lab.Machine, name string) {
	t.Helper()
	hasDevice(t, m)
	manifest := fmt.Sprintf(withDevice, name, m.Name, images.Hello)
	if _, err := bench.StartPod(t.Context(), name, manifest); err != nil {
		t.Fatal(err)
	}
}

// hasDevice waits until a Node has the device.
func hasDevice(t *testing.T, m lab.Machine) {
	t.Helper()
	eventually(t, "the device of "+m.Name, func() bool {
		n := nodeOf(t, m.Name).Status.Allocatable[device]
		return n.Value() == 1
	})
}

// again waits until the plugin has registered with a second kubelet, and the Node has its device.
func (p *devicePlugin) again(t *testing.T, m lab.Machine) {
	t.Helper()
	eventually(t, "the plugin with the other kubelet", func() bool {
		return p.registrations.Load() == 2
	})
	hasDevice(t, m)
}

// kept fails if a change replaces the sockets or makes the plugin register again.
func (p *devicePlugin) kept(t *testing.T, change func()) {
	t.Helper()
	registrations, before := p.registrations.Load(), p.sockets(t)
	change()
	for name, is := range p.sockets(t) {
		if !os.SameFile(is, before[name]) {
			t.Errorf("%s is another socket", name)
		}
	}
	if now := p.registrations.Load(); now != registrations {
		t.Errorf("the plugin has registered %d times, before %d", now, registrations)
	}
}

// sockets returns the sockets of the device plugin and of kubelet.
func (p *devicePlugin) sockets(t *testing.T) map[string]fs.FileInfo {
	t.Helper()
	found := map[string]fs.FileInfo{}
	for _, name := range []string{ownSocket, kubeletSocket} {
		info, err := os.Lstat(filepath.Join(p.dir, name))
		if err == nil && info.Mode().Type() != fs.ModeSocket {
			err = errors.New("it is no socket")
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found[name] = info
	}
	return found
}
