package health

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
)

func now() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) time.Time { return now().Add(-d) }

// notFound is the API server's 404, as a client of ours wraps it.
func notFound() error {
	err := apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "edge-1")
	return fmt.Errorf("cannot read Node edge-1: %w", err)
}

// unavailable is the answer of an API server that is ill.
func unavailable() error { return apierrors.NewServiceUnavailable("etcd is down") }

// goodConfig is the configuration of a node whose cluster allocates the pod subnets.
func goodConfig() Wanted {
	var c config.Config
	c.Agent.NodeName, c.Kubernetes.Version, c.Containerd.Version = "edge-1", "1.35.1", "2.3.4"
	c.CNI.NonMasqueradeCIDRs = []string{"10.244.0.0/16", "fd00::/16"}
	c.ContinuousMonitoring = true
	c.Node.MaxPods, c.Node.Labels = 110, map[string]string{"site": "oslo"}
	c.Node.Taints = []string{"dedicated=edge:NoSchedule"}
	c.Node.Kubelet.DNSServiceIP, c.Node.Kubelet.NodeIP = "10.96.0.10", "10.0.0.4"
	c.Node.Kubelet.KubeReserved = map[string]string{"cpu": "200m", "memory": "512Mi"}
	return Wanted{Config: c, Settling: 10 * time.Second}
}

// good is the evidence of a node of which everything is as it should be.
func good() Evidence {
	return Evidence{
		Now:    now(),
		Wanted: goodConfig(),
		Machine: &Machine{Facts: host.Facts{
			Arch: "amd64", OSID: "ubuntu", OSVersion: "24.04", OSName: "Ubuntu 24.04 LTS",
			MachineID: "3d12", SystemUUID: "4c4c-0031",
			Systemd: true, IPTables: true, NFTables: true, Free: map[string]int64{"/var/lib": 40 << 30},
			Addresses: []string{"127.0.0.1", "10.0.0.4", "fe80::1%eth0", "fd00::4"},
			CPUs:      4000, MemoryBytes: 8 << 30, DiskBytes: 64 << 30,
			CNIConfigs: []string{"10-flex.conflist"}, Resolvers: []string{"192.0.2.1"},
		},
			Barriers: Answered([]Firewall(nil), nil),
			PodCIDRs: []string{"10.244.1.0/24", "fd00:1::/64"},
		},
		Observed:      Tried(nil),
		Trust:         Tried(nil),
		Containerd:    Answered(Service{Active: true, PID: 10, Since: ago(time.Hour)}, nil),
		Kubelet:       Answered(Service{Active: true, PID: 11, Since: ago(time.Hour)}, nil),
		Healthz:       Tried(nil),
		Probe:         Tried(nil),
		Credential:    Answered("system:node:edge-1", nil),
		ServerVersion: Answered("1.35.1", nil),
		Metadata:      Answered(Metadata{Guarded: true, Tried: true, Refused: true}, nil),
		CSRs:          Answered([]kube.CSR{{Name: "csr-1", State: "issued"}}, nil),
		Node:          Answered(goodNode(), nil),
		Lease:         Answered(lease(ago(5*time.Second)), nil),
		Pods:          Answered([]corev1.Pod{pod("web", time.Hour, true)}, nil),
		Services: Answered(kube.Services{DNS: "10.96.0.10", Tried: []kube.Connection{
			{Service: "DNS", Address: "10.96.0.10:53"},
		}}, nil),
		Upkeep: &Upkeep{
			Upkeep:    host.Upkeep{Clock: &host.Clock{Synchronized: true}},
			HostNames: []string{"Edge-1"}, CA: authority(now().Add(time.Hour)),
			Client: Answered(Validity{From: ago(time.Hour), To: now().Add(time.Hour)}, nil),
			Polls:  &Polls{Answered: ago(time.Minute)},
		},
		Damaged: Answered([]string(nil), nil),
		Drift:   Answered(0, nil),
	}
}

func goodNode() kube.Node {
	n := kube.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "edge-1", Labels: map[string]string{"site": "oslo", "other": "x"},
	}}
	n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.244.1.0/24", []string{"10.244.1.0/24", "fd00:1::/64"}
	n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "edge", Effect: "NoSchedule"}}
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastHeartbeatTime: metav1.NewTime(ago(time.Minute)),
	}}
	n.Status.NodeInfo.MachineID, n.Status.NodeInfo.SystemUUID = "3d12", "4C4C-0031"
	n.Status.NodeInfo.KubeletVersion = "v1.35.1"
	n.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.3.4"
	n.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "edge-1"},
		{Type: corev1.NodeInternalIP, Address: "10.0.0.4"},
	}
	return n
}

func lease(renewed time.Time) kube.Lease {
	seconds, at := int32(40), metav1.NewMicroTime(renewed)
	return kube.Lease{Spec: coordinationv1.LeaseSpec{
		LeaseDurationSeconds: &seconds, RenewTime: &at,
	}}
}

// pod is a pod that was bound so long ago.
func pod(name string, age time.Duration, begun bool) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	p.CreationTimestamp = metav1.NewTime(ago(age + time.Hour))
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(ago(age)),
	}}
	p.Status.Phase = corev1.PodPending
	if begun {
		p.Status.StartTime = new(metav1.NewTime(ago(age)))
	}
	return p
}

// with changes good evidence.
func with(change func(*Evidence)) Evidence {
	e := good()
	change(&e)
	return e
}

// withNode changes the Node of good evidence.
func withNode(change func(*kube.Node)) Evidence {
	e := good()
	change(&e.Node.Value)
	return e
}

// expect describes the condition expected for some evidence.
type expect struct {
	name     string
	evidence Evidence
	status   Status
	reason   string
	owner    string
	says     string // a part of the message
}

// check evaluates one condition for each expectation, and that good evidence makes it True and none
// at all Unknown.
func check(t *testing.T, kind string, tests []expect) {
	t.Helper()
	compare(t, kind, append(tests, expect{name: "all is well", evidence: good(), status: True}))
}

func compare(t *testing.T, kind string, tests []expect) {
	t.Helper()
	for _, tt := range tests {
		c := condition(t, kind, tt.evidence)
		reason := tt.reason
		if reason == "" && tt.status == True {
			reason = "AsExpected"
		}
		if c.Status != tt.status || c.Reason != reason || c.Owner != tt.owner {
			t.Errorf("%s, %s: %s %s of %q (%s), want %s %s of %q",
				kind, tt.name, c.Status, c.Reason, c.Owner, c.Message, tt.status, reason, tt.owner)
		}
		if !strings.Contains(c.Message, tt.says) {
			t.Errorf("%s, %s: the message is %q, want a word on %q", kind, tt.name, c.Message, tt.says)
		}
		if c.Status != True && c.Message == "" {
			t.Errorf("%s, %s: no message", kind, tt.name)
		}
	}
}

func condition(t *testing.T, kind string, e Evidence) Condition {
	t.Helper()
	for _, c := range judged(e, func(known entry) bool { return known.name == kind }) {
		c.Message = Clip(c.Message, longestMessage)
		return c
	}
	t.Fatalf("there is no condition %s", kind)
	return Condition{}
}

// blank is an expectation for evidence that holds nothing.
func blank(reason string) expect {
	none := Evidence{Now: now()}
	return expect{name: "nothing is known", evidence: none, status: Unknown, reason: reason}
}

// failed is the answer of a question that could not be put.
func failed[T any]() Answer[T] {
	var none T
	return Answered(none, unavailable())
}

func statusError(code int) error {
	return apierrors.NewGenericServerResponse(code, http.MethodGet,
		schema.GroupResource{Resource: "nodes"}, "edge-1", "not us", 0, true)
}
