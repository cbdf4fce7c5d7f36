package stories

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/agent"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
)

// fault is one thing that is wrong with a machine or its surroundings, and the condition that a
// person has to be told first.
type fault struct {
	name   string
	joined bool // planted on a node; else on a machine that is to join
	plant  func(*patient)
	first  string
}

// patient is a machine on which a fault is planted.
type patient struct {
	*world
	// facts and examination change what the machine tells of itself, where no file below the root
	// decides.
	facts       func(*host.Facts)
	examination func(*host.Examination)
	upkeep      func(*host.Upkeep)
	given       error // why the configuration cannot be used
	real        bool  // over the network of this machine instead of the world's
	both        bool  // over that network where the world's has no such server
}

// told is a host that says something else.
type told struct {
	*host.Host
	p *patient
}

func (m told) Facts(ctx context.Context, q host.Query) (host.Facts, error) {
	f, err := m.Host.Facts(ctx, q)
	if m.p.facts != nil {
		m.p.facts(&f)
	}
	return f, err
}

func (m told) Examine(modules []string, dir, resolvConf string) host.Examination {
	x := m.Host.Examine(modules, dir, resolvConf)
	x.Sync = time.Millisecond // whatever else the disk of this machine has to do
	if m.p.examination != nil {
		m.p.examination(&x)
	}
	return x
}

func (m told) Upkeep(ctx context.Context, dirs []string) host.Upkeep {
	u := m.Host.Upkeep(ctx, dirs)
	if m.p.upkeep != nil {
		m.p.upkeep(&u)
	}
	return u
}

// doctor runs the verb, and fails if it has changed anything.
func (p *patient) doctor(t *testing.T) []health.Diagnosis {
	t.Helper()
	before := p.tree()
	a := p.agent()
	a.Machine, a.Patience = told{a.Machine.(*host.Host), p}, 2*time.Second
	if p.real {
		a.Dial = nil
	}
	if dial := a.Dial; p.both {
		a.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if conn, err := dial(ctx, network, address); err == nil {
				return conn, nil
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	}
	given := agent.Given{Err: p.given}
	if p.given == nil {
		given.Input = &agent.Input{Config: p.config, Origin: "file"}
	}
	list := a.Doctor(t.Context(), given, func(string) bool { return true })
	p.same(before)
	return list
}

// healthyFiles are what a healthy kernel shows.
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
	p.write("/proc/cpuinfo", "flags\t\t: fpu cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3\n")
	p.write("/proc/net/tcp", "  sl  local_address rem_address   st\n"+
		"   0: 00000000:0016 00000000:0000 0A 0\n")
	p.write("/proc/net/route", "Iface Destination Gateway Flags RefCnt Use Metric Mask\n"+
		"eth0 00000000 0101A8C0 0003 0 0 0 00000000\n")
}

func faults() []fault {
	drops := func(p *patient) { p.wall(); p.config = p.configuration(firewall("check")) }
	proxy := func(status int) func(*patient) {
		return func(p *patient) {
			server := httptest.NewServer(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
			p.t.Cleanup(server.Close)
			via := strings.Replace(server.URL, "//", "//user:wrong@", 1)
			p.real = true
			p.config = p.configuration(func(c map[string]any) {
				c["proxy"] = map[string]any{"https": via}
				kubelet(c)["serverURL"] = "https://api.example:6443"
			})
		}
	}
	return []fault{
		{"a name that does not resolve", false, func(p *patient) {
			p.config = p.configuration(nowhere)
		}, health.NamesResolved},
		{"no DNS server", false, func(p *patient) {
			p.write("/etc/resolv.conf", "search example\n")
			p.config = p.configuration(nowhere)
		}, health.ResolverConfigured},
		{"no default route", false, func(p *patient) {
			p.write("/proc/net/route", "Iface Destination Gateway Flags\n")
			p.cluster.down = true
		}, health.DefaultRoute},
		{"nothing listens at the API server's address", false, func(p *patient) {
			p.cluster.down = true
		}, health.APIServerReachable},
		{"large packets are lost", false, (*patient).blackHole, health.PathMTU},
		{"a proxy with a wrong password", false, proxy(407), health.APIServerReachable},
		{"a proxy that forbids the host", false, proxy(403), health.APIServerReachable},
		{"a wrong CA", false, func(p *patient) {
			p.config = p.configuration(func(c map[string]any) {
				kubelet(c)["caCertData"] = encoded(p.cluster.authority().trusted)
			})
		}, health.APIServerReachable},
		{"a wrong clock", false, func(p *patient) {
			p.cluster.ahead = 20 * time.Minute
		}, health.ClockAccurate},
		{"a wrong bootstrap token", false, func(p *patient) {
			p.cluster.token = "000000.0000000000000000"
		}, health.CredentialValid},
		{"an invalid configuration", false, func(p *patient) {
			p.given = errors.New("node.maxPods: must be a number")
		}, health.ConfigurationValid},
		{"another container runtime", false, func(p *patient) {
			p.write("/etc/systemd/system/docker.service", "[Service]\nExecStart=/usr/bin/dockerd\n")
		}, health.RuntimeOwned},
		{"the state of another node", false, func(p *patient) {
			p.write("/var/lib/kubelet/config.yaml", "x")
		}, health.DirectoriesFree},
		{"an unsupported system", false, func(p *patient) {
			p.write("/etc/os-release", "ID=ubuntu\nVERSION_ID=\"18.04\"\nPRETTY_NAME=\"Ubuntu 18.04\"\n")
		}, health.SystemSupported},
		{"an old processor", false, func(p *patient) {
			p.write("/proc/cpuinfo", "flags\t\t: fpu cx16 lahf_lm ssse3\n")
		}, health.ProcessorSupported},
		{"a missing kernel module", false, func(p *patient) {
			p.write("/lib/modules/6.8.0-test/modules.dep", "kernel/net/bridge/br_netfilter.ko:\n")
		}, health.KernelModules},
		{"control groups of version 1", false, func(p *patient) {
			p.remove("/sys/fs/cgroup/cgroup.controllers")
			p.write("/sys/fs/cgroup/memory/tasks", "")
			p.config.Kubernetes.Version = "1.35.4"
		}, health.ControlGroups},
		{"a control group controller that is off", false, func(p *patient) {
			p.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu pids\n")
		}, health.ControlGroups},
		{"kubelet's port in use", false, func(p *patient) {
			p.write("/proc/net/tcp", "sl\n 0: 00000000:280A 00000000:0000 0A 0\n")
		}, health.PortsFree},
		{"no iptables", false, func(p *patient) {
			p.facts = func(f *host.Facts) { f.IPTables = false }
		}, health.ToolsInstalled},
		{"a full disk", false, func(p *patient) {
			p.facts = func(f *host.Facts) { f.Free["/var/lib"] = 1 << 20 }
		}, health.DiskSpace},
		{"no inodes left", false, func(p *patient) {
			p.upkeep = func(u *host.Upkeep) { u.InodesUsed["/var/lib"] = 99 }
		}, health.InodesFree},
		{"a file system that became read-only", true, func(p *patient) {
			p.upkeep = func(u *host.Upkeep) { u.ReadOnly = []string{"/var/lib"} }
		}, health.FileSystemsWritable},
		{"an address that the machine does not have", false, func(p *patient) {
			p.config = p.configuration(func(c map[string]any) {
				kubelet(c)["nodeIP"] = "192.0.2.77"
			})
		}, health.NodeAddressPresent},
		{"more reserved than there is", false, func(p *patient) {
			p.config = p.configuration(func(c map[string]any) {
				kubelet(c)["kubeReserved"] = map[string]any{"memory": "999Ti"}
			})
		}, health.ReservationsFit},
		{"a version that does not go with the cluster", false, func(p *patient) {
			p.cluster.version = "v1.33.0"
		}, health.VersionsCompatible},
		{"a program that others can change", false, func(p *patient) {
			p.trusted = func(string) error { return errors.New("cannot trust the program") }
		}, health.ProgramTrusted},
		{"a firewall", false, drops, health.FirewallOpen},
		{"containerd stopped", true, func(p *patient) { p.stop("containerd.service") },
			health.ContainerdRunning},
		{"kubelet stopped", true, func(p *patient) { p.stop("kubelet.service") },
			health.KubeletRunning},
		{"kubelet crashing", true, func(p *patient) {
			p.settling = time.Hour
			p.systemd.Crash("kubelet.service")
		}, health.KubeletStable},
		{"a sick kubelet", true, func(p *patient) {
			p.sick.Store(true)
		}, health.KubeletHealthy},
		{"swap on", true, func(p *patient) {
			_ = p.kernel.SwapOn("/swap.img", -2)
			p.stop("kubelet.service")
		}, health.SwapOff},
		{"an expired client certificate", true, func(p *patient) {
			p.expire()
			p.cluster.refused = true
		}, health.KubeletCertificate},
		{"a credential that is no longer accepted", true, func(p *patient) {
			p.cluster.refused = true
		}, health.CredentialValid},
		{"a new CA of the cluster", true, func(p *patient) {
			p.cluster.newCA()
		}, health.APIServerReachable},
		{"a deleted Node", true, func(p *patient) {
			p.cluster.set(func() { p.cluster.remove("edge-1") })
		}, health.NodeRegistered},
		{"the pod network's configuration removed", true, func(p *patient) {
			p.remove("/etc/cni/net.d/99-aks-flex-node.conflist")
		}, health.NodeReady},
		{"labels removed", true, func(p *patient) {
			p.cluster.set(func() { delete(p.cluster.nodes["edge-1"].Labels, "example.com/site") })
		}, health.LabelsApplied},
		{"Services that do not answer", true, func(p *patient) {
			p.cluster.set(func() { p.cluster.noServices = true })
		}, health.ServicesReachable},
		{"a changed file", true, func(p *patient) {
			p.write("/etc/sysctl.d/999-aks-flex-node.conf", "# changed\n")
		}, health.HostAsConfigured},
		{"a slow disk", false, func(p *patient) {
			p.examination = func(x *host.Examination) { x.Sync = 3 * time.Second }
		}, health.DiskResponsive},
		{"a package that dpkg has not finished with", false, func(p *patient) {
			p.packages("azcmagent", "install ok half-configured")
		}, health.PackagesInOrder},
		{"a containerd that apt may upgrade", true, func(p *patient) {
			p.packages("containerd.io", "install ok installed")
		}, health.PackagesInOrder},
		{"a hold on the agent's package", true, func(p *patient) {
			p.packages("aks-flex-node", "hold ok installed")
		}, health.PackagesInOrder},
		{"a clock that nobody keeps", false, func(p *patient) {
			p.kernel.unsynchronized.Store(true)
			p.upkeep = func(u *host.Upkeep) { u.Clock.Uptime = time.Hour }
		}, health.TimeSynchronized},
		{"a time service without a server", true, func(p *patient) {
			p.upkeep = func(u *host.Upkeep) {
				u.Clock = &host.Clock{Uptime: time.Hour, Keepers: []string{"chrony.service"}}
			}
		}, health.TimeSynchronized},
		{"an update that waits for a reboot", true, func(p *patient) {
			p.write("/run/reboot-required", "*** System restart required ***\n")
		}, health.RebootNotPending},
		{"a machine that was renamed", true, func(p *patient) {
			p.write("/proc/sys/kernel/hostname", "renamed\n")
		}, health.HostNameStable},
		{"a machine that has another name after its next boot", true, func(p *patient) {
			p.write("/etc/hostname", "renamed\n")
		}, health.HostNameStable},
		{"a machine called localhost", false, func(p *patient) {
			p.config.Agent.NodeName = "localhost"
		}, health.HostNameStable},
		{"an expired certificate of the service principal", false, func(p *patient) {
			p.principal(-time.Hour)
		}, health.PrincipalCertificate},
		{"a certificate of the service principal that ends soon", false, func(p *patient) {
			p.principal(5 * time.Hour)
		}, health.PrincipalCertificate},
		{"a CA of the cluster that has ended", false, func(p *patient) {
			ca, _ := p.ended(x509.Certificate{Subject: pkix.Name{CommonName: "old"}, IsCA: true,
				BasicConstraintsValid: true})
			p.config = p.configuration(func(c map[string]any) {
				kubelet(c)["caCertData"] = encoded(ca)
			})
		}, health.ClusterCAValid},
		{"a silent provider", false, func(p *patient) {
			p.principal(90 * 24 * time.Hour)
			p.config = p.configuration(
				p.certificate(p.config.Azure.ServicePrincipal.CertificateFile),
				func(c map[string]any) { c["continuousMonitoring"] = true })
			if _, err := p.bootstrap(); err != nil {
				p.t.Fatal(err)
			}
			p.serves(agent.Work{Started: time.Now().Add(-time.Hour), Polls: &agent.Polls{
				Result: "failed", Error: "cannot connect", Failures: 9}})
		}, health.ProviderAnswers},
		{"a damaged ledger", true, func(p *patient) {
			p.write("/var/lib/aks-flex-node/ledger.json", "{")
		}, health.StateReadable},
	}
}

// least is how many faults must be named first.
const least = 28

func TestDoctorNamesWhatIsWrong(t *testing.T) {
	planted, named := 0, 0
	for _, f := range faults() {
		planted++
		t.Run(f.name, func(t *testing.T) {
			p := healthy(t, f.joined)
			f.plant(p)
			list := p.doctor(t)
			if len(list) == 0 || list[0].Type != f.first || !list[0].Found() {
				t.Errorf("first is %s; want %s in\n%s", list[0].Type, f.first, shown(list))
				return
			}
			if d := list[0]; d.Owner == "" || d.Message == "" || d.Layer == "" {
				t.Errorf("the finding does not say what, where and who: %+v", d)
			}
			named++
		})
	}
	fmt.Printf("doctor planted=%d named_first=%d\n", planted, named)
	if planted < 30 || named < least {
		t.Errorf("%d of %d faults are named first", named, planted)
	}
}

// Nothing is found where nothing is wrong: before, during and after a join.
func TestDoctorFindsNothing(t *testing.T) {
	for _, joined := range []bool{false, true} {
		p := healthy(t, joined)
		for _, d := range p.doctor(t) {
			if d.Found() || d.Verdict == health.Unclear && d.Type != health.ClockAccurate {
				t.Errorf("joined %v: %+v", joined, d)
			}
		}
	}
	p := healthy(t, false)
	p.blow(40)
	if _, err := p.bootstrap(); !errors.Is(err, errKilled) {
		t.Fatalf("the error is %v; want a run that was killed", err)
	}
	p.blow(-1)
	notYet := []string{health.ContainerdRunning, health.KubeletRunning}
	for _, d := range p.doctor(t) {
		follows := slices.ContainsFunc(d.Follows, func(cause string) bool {
			return slices.Contains(notYet, cause)
		})
		if d.Found() && !slices.Contains(notYet, d.Type) && !follows {
			t.Errorf("during a join: %+v", d)
		}
	}
}

// healthy is a machine with nothing wrong.
func healthy(t *testing.T, joined bool) *patient {
	t.Helper()
	p := &patient{world: newWorld(t)}
	p.healthyFiles()
	if joined {
		if _, err := p.bootstrap(); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func shown(list []health.Diagnosis) string {
	var lines []string
	for _, d := range list {
		if d.Found() || d.Verdict == health.Unclear {
			lines = append(lines, fmt.Sprintf("%s %s %s (follows %v): %s", d.Verdict, d.Type, d.Reason,
				d.Follows, d.Message))
		}
	}
	return strings.Join(lines, "\n")
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

// blackHole is a network on which only small packets arrive: a server behind it never sees a
// handshake of larger ones.
func (p *patient) blackHole() {
	server := httptest.NewUnstartedServer(p.cluster.Config.Handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Listener = &narrow{Listener: server.Listener}
	server.StartTLS() // with httptest's certificate, as the cluster
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

// principal has the machine join as a service principal with a certificate.
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

// serves is a service that runs and tells what it does.
func (p *patient) serves(work agent.Work) {
	p.t.Helper()
	listener, err := net.Listen("unix", p.root+agent.SocketFile)
	if err != nil {
		p.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(work)
	})}
	go server.Serve(listener)
	p.t.Cleanup(func() { server.Close() })
}

// ended is a certificate that is no longer valid, in PEM, and its key.
func (p *patient) ended(of x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	p.t.Helper()
	c, key := p.cluster.sign(&of, nil, nil)
	c.SerialNumber = big.NewInt(7)
	c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		p.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
}

// expire replaces kubelet's certificate by one that has ended.
func (p *patient) expire() {
	c, key := p.ended(x509.Certificate{Subject: pkix.Name{CommonName: "x"}})
	text, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	p.write("/var/lib/kubelet/pki/kubelet-client-current.pem",
		string(c)+string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})))
}

func kubelet(c map[string]any) map[string]any {
	return c["node"].(map[string]any)["kubelet"].(map[string]any)
}

func nowhere(c map[string]any) { kubelet(c)["serverURL"] = "https://nowhere.example:6443" }

func encoded(ca []byte) string { return base64.StdEncoding.EncodeToString(ca) }
