package stories

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/host"
)

// patient is a machine with a planted fault.
type patient struct {
	*world
	// facts and examination change the machine's answers that no file below the root determines.
	facts       func(*host.Facts)
	examination func(*host.Examination)
	upkeep      func(*host.Upkeep)
	unseen      error // why the facts are not complete
	given       error // why the configuration cannot be used
	real        bool  // over the network of this machine instead of the world's
	both        bool  // over that network where the world's has no such server
}

// told is a host with other answers.
type told struct {
	*host.Host
	p *patient
}

func (m told) Facts(ctx context.Context, q host.Query) (host.Facts, error) {
	f, err := m.Host.Facts(ctx, q)
	if m.p.facts != nil {
		m.p.facts(&f)
	}
	return f, cmp.Or(err, m.p.unseen)
}

func (m told) Examine(modules []string) host.Examination {
	x := m.Host.Examine(modules)
	if m.p.examination != nil {
		m.p.examination(&x)
	}
	return x
}

func (m told) Upkeep(ctx context.Context) host.Upkeep {
	u := m.Host.Upkeep(ctx)
	if m.p.upkeep != nil {
		m.p.upkeep(&u)
	}
	return u
}

// healthyFiles writes the files of a healthy kernel.
func (p *patient) healthyFiles() {
	p.write("/proc/sys/kernel/osrelease", "6.8.0-test\n")
	p.write("/proc/sys/kernel/hostname", "edge-1\n")
	p.write("/etc/hostname", "edge-1\n")
	p.write("/var/lib/dpkg/status", "Package: bash\nStatus: install ok installed\n\n"+
		"Package: runc\nStatus: deinstall ok config-files\n")
	p.write("/lib/modules/6.8.0-test/modules.dep",
		"kernel/fs/overlayfs/overlay.ko.zst:\nkernel/net/bridge/br_netfilter.ko.zst: x\n")
	p.write("/lib/modules/6.8.0-test/modules.builtin", "kernel/fs/ext4/ext4.ko\n")
	p.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
	p.write("/proc/net/tcp", "  sl  local_address rem_address   st\n"+
		"   0: 00000000:0016 00000000:0000 0A 0\n")
	p.write("/proc/net/route", "Iface Destination Gateway Flags RefCnt Use Metric Mask\n"+
		"eth0 00000000 0101A8C0 0003 0 0 0 00000000\n")
}

func (p *patient) remove(path string) {
	p.t.Helper()
	if err := os.Remove(filepath.Join(p.root, path)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *patient) stop(unit string) {
	p.t.Helper()
	if err := p.systemd.Stop(context.Background(), unit); err != nil {
		p.t.Fatal(err)
	}
}

// blackHole sets up a network that only passes small packets: a server behind it never sees a
// handshake of larger ones.
func (p *patient) blackHole() {
	server := httptest.NewUnstartedServer(p.cluster.Config.Handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Listener = &narrow{Listener: server.Listener}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{serving()}} // as the cluster
	server.StartTLS()
	p.t.Cleanup(server.Close)
	p.real = true
	p.config = p.configuration(func(c map[string]any) { kubelet(c)["serverURL"] = server.URL })
}

// narrow serves connections of small segments, and leaves the others alone.
type narrow struct {
	net.Listener
	mu   sync.Mutex
	left []net.Conn
}

func (n *narrow) Accept() (net.Conn, error) {
	for {
		conn, err := n.Listener.Accept()
		if err != nil {
			return nil, err
		}
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			return nil, err
		}
		size := 0
		if err := raw.Control(func(fd uintptr) {
			size, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
		}); err != nil {
			return nil, err
		}
		if size <= 600 {
			return conn, nil
		}
		n.mu.Lock()
		n.left = append(n.left, conn)
		n.mu.Unlock()
	}
}

func (n *narrow) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.left {
		conn.Close()
	}
	return n.Listener.Close()
}

// principal makes the machine join as a service principal with a certificate.
func (p *patient) principal(lifetime time.Duration) {
	w, sim := azureWorld(p.t.(*testing.T))
	p.world, p.both = w, true
	p.healthyFiles()
	certificate, file := p.applicationCertificate("principal", lifetime)
	sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
		Certificates: []string{certificate}})
	p.config = p.configuration(p.certificate(file))
}

// packages adds a package to dpkg's records.
func (p *patient) packages(name, status string) {
	p.write("/var/lib/dpkg/status", p.read("/var/lib/dpkg/status")+
		"\nPackage: "+name+"\nStatus: "+status+"\nVersion: 1\n")
}

// serves sets up a running service that reports its work.
func (p *patient) serves(work inspect.Work) {
	p.t.Helper()
	listener, err := net.Listen("unix", p.root+inspect.SocketFile)
	if err != nil {
		p.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(work)
	})}
	go server.Serve(listener)
	p.t.Cleanup(func() { server.Close() })
}

// ended returns an expired certificate, in PEM, and its key.
func (p *patient) ended(of x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	p.t.Helper()
	c, key := sign(&of, nil, nil)
	c.SerialNumber = big.NewInt(7)
	c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		p.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
}

// expire replaces kubelet's certificate with an expired one.
func (p *patient) expire() {
	c, key := p.ended(x509.Certificate{Subject: pkix.Name{CommonName: "x"}})
	text, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	p.write("/var/lib/kubelet/pki/kubelet-client-current.pem",
		string(c)+string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})))
}
