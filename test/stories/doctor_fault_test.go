package stories

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
)

// fault is one fault of a machine or its surroundings, and the condition that must be reported
// first.
type fault struct {
	name   string
	joined bool // planted on a node; else on a machine that is to join
	plant  func(*patient)
	first  string
}

const kubeadmDropIn = "/systemd/system/kubelet.service.d/10-kubeadm.conf"

func faults() []fault {
	drops := func(p *patient) { p.wall(); p.config = p.configuration(firewall("check")) }
	kubeadm := func(p *patient) {
		p.write("/usr/lib"+kubeadmDropIn,
			"[Service]\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS\n")
	}
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
		}, health.NamesResolved}, // the other is a warning
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
		}, "ConfigurationValid"},
		{"another container runtime", false, func(p *patient) {
			p.write("/etc/systemd/system/docker.service", "[Service]\nExecStart=/usr/bin/dockerd\n")
		}, "RuntimeOwned"},
		{"kubeadm before the join", false, kubeadm, "RuntimeOwned"},
		{"kubeadm on a node", true, kubeadm, "RuntimeOwned"},
		{"the state of another node", false, func(p *patient) {
			p.write("/var/lib/kubelet/config.yaml", "x")
		}, "DirectoriesFree"},
		{"an unsupported system", false, func(p *patient) {
			p.write("/etc/os-release", "ID=ubuntu\nVERSION_ID=\"18.04\"\nPRETTY_NAME=\"Ubuntu 18.04\"\n")
		}, "SystemSupported"},
		{"a missing kernel module", false, func(p *patient) {
			p.write("/lib/modules/6.8.0-test/modules.dep", "kernel/net/bridge/br_netfilter.ko:\n")
		}, "KernelModules"},
		{"control groups of version 1", false, func(p *patient) {
			p.remove("/sys/fs/cgroup/cgroup.controllers")
			p.write("/sys/fs/cgroup/memory/tasks", "")
			p.config.Kubernetes.Version = "1.35.4"
		}, "ControlGroups"},
		{"a control group controller that is off", false, func(p *patient) {
			p.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu pids\n")
		}, "ControlGroups"},
		{"no iptables", false, func(p *patient) {
			p.facts = func(f *host.Facts) { f.IPTables = false }
		}, "ToolsInstalled"},
		{"a full disk", false, func(p *patient) {
			p.facts = func(f *host.Facts) { f.Free["/var/lib"] = 1 << 20 }
		}, "DiskSpace"},
		{"no inodes left", false, func(p *patient) {
			p.facts = func(f *host.Facts) { f.InodesUsed["/var/lib"] = 99 }
		}, "InodesFree"},
		{"a file system that became read-only", true, func(p *patient) {
			p.facts = func(f *host.Facts) { f.ReadOnly = []string{"/var/lib"} }
		}, "FileSystemsWritable"},
		{"an address that the machine does not have", false, func(p *patient) {
			p.config = p.configuration(func(c map[string]any) {
				kubelet(c)["nodeIP"] = "192.0.2.77"
			})
		}, "NodeAddressPresent"},
		{"more reserved than there is", false, func(p *patient) {
			p.config = p.configuration(func(c map[string]any) {
				kubelet(c)["kubeReserved"] = map[string]any{"memory": "999Ti"}
			})
		}, "ReservationsFit"},
		{"a version that does not go with the cluster", false, func(p *patient) {
			p.cluster.version = "v1.33.0"
		}, health.VersionsCompatible},
		{"a program that others can change", false, func(p *patient) {
			p.trusted = func(string) error { return errors.New("cannot trust the program") }
		}, "ProgramTrusted"},
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
		}, "SwapOff"},
		{"an expired client certificate", true, func(p *patient) {
			p.expire()
			p.cluster.refused = true
		}, health.KubeletCertificate},
		{"a deleted client certificate", true, func(p *patient) {
			p.remove("/var/lib/kubelet/pki/kubelet-client-current.pem")
		}, health.KubeletCertificate},
		{"a deleted kubeconfig of kubelet", true, func(p *patient) {
			p.remove("/var/lib/kubelet/kubeconfig")
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
		}, "ServicesReachable"},
		{"a changed file", true, func(p *patient) {
			p.write("/etc/sysctl.d/999-aks-flex-node.conf", "# changed\n")
		}, health.HostAsConfigured},
		{"a package that dpkg has not finished with", false, func(p *patient) {
			p.packages("azcmagent", "install ok half-configured")
		}, "PackagesInOrder"},
		{"a containerd that apt may upgrade", true, func(p *patient) {
			p.packages("containerd.io", "install ok installed")
		}, "PackagesInOrder"},
		{"a hold on the agent's package", true, func(p *patient) {
			p.packages("aks-flex-node", "hold ok installed")
		}, "PackagesInOrder"},
		{"a clock without a time service", false, func(p *patient) {
			p.kernel.unsynchronized.Store(true)
			p.upkeep = func(u *host.Upkeep) { u.Clock.Uptime = time.Hour }
		}, "TimeSynchronized"},
		{"a time service without a server", true, func(p *patient) {
			p.upkeep = func(u *host.Upkeep) {
				u.Clock = &host.Clock{Uptime: time.Hour, Keepers: []string{"chrony.service"}}
			}
		}, "TimeSynchronized"},
		{"an update that waits for a reboot", true, func(p *patient) {
			p.write("/run/reboot-required", "*** System restart required ***\n")
		}, "RebootNotPending"},
		{"a machine that was renamed", true, func(p *patient) {
			p.write("/proc/sys/kernel/hostname", "renamed\n")
		}, "HostNameStable"},
		{"a machine that has another name after its next boot", true, func(p *patient) {
			p.write("/etc/hostname", "renamed\n")
		}, "HostNameStable"},
		{"a machine called localhost", false, func(p *patient) {
			p.config.Agent.NodeName = "localhost"
		}, "HostNameStable"},
		{"an expired certificate of the service principal", false, func(p *patient) {
			p.principal(-time.Hour)
		}, health.PrincipalCredential},
		{"a certificate of the service principal that ends soon", false, func(p *patient) {
			p.principal(5 * time.Hour)
		}, health.PrincipalCredential},
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
			p.serves(inspect.Work{Started: time.Now().Add(-time.Hour), Polls: &health.Polls{
				Result: "failed", Error: "cannot connect", Failures: 9}})
		}, "ProviderAnswers"},
		{"a damaged ledger", true, func(p *patient) {
			p.write("/var/lib/aks-flex-node/ledger.json", "{")
		}, "StateReadable"},
	}
}

func kubelet(c map[string]any) map[string]any {
	return c["node"].(map[string]any)["kubelet"].(map[string]any)
}

func nowhere(c map[string]any) { kubelet(c)["serverURL"] = "https://nowhere.example:6443" }

func encoded(ca []byte) string { return base64.StdEncoding.EncodeToString(ca) }
