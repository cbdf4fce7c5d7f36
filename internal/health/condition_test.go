package health

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

func types(conditions []Condition) []string {
	var names []string
	for _, c := range conditions {
		names = append(names, c.Type)
	}
	return names
}

// The resource provider takes so many conditions with messages of 1 KiB.
func TestWatch(t *testing.T) {
	all := Evaluate(Watch, good())
	if !Healthy(all) || Problem(all) != nil {
		t.Errorf("a node that is well: %v", Problem(all))
	}
	if len(all) > 64 {
		t.Errorf("%d conditions are more than a report takes", len(all))
	}
	for _, c := range all {
		if !c.Since.Equal(now()) {
			t.Errorf("%s is since %s", c.Type, c.Since)
		}
	}
}

func TestPreflight(t *testing.T) {
	e := good() // what is known of a machine that is no node yet
	e = Evidence{Now: e.Now, Wanted: e.Wanted, Machine: e.Machine, Trust: e.Trust, Probe: e.Probe}
	conditions := Evaluate(Preflight, e)
	if err := Problem(conditions); err != nil {
		t.Errorf("a machine that can become a node: %v", err)
	}
	e.Machine.IPTables, e.Wanted.Node.Kubelet.KubeReserved["cpu"] = false, "900"
	err := Problem(Evaluate(Preflight, e))
	failing, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("the problem is %v", err)
	}
	want := []string{"ToolsInstalled", "ReservationsFit"}
	if diff := cmp.Diff(want, types(failing.Conditions)); diff != "" {
		t.Errorf("failing (-want +got):\n%s", diff)
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 2 ||
		!strings.HasPrefix(lines[0], "ToolsInstalled: iptables is not installed") {
		t.Errorf("the problem is %q", err)
	}
}

// The gate passes only what is proved: evidence that is missing is no proof.
func TestGate(t *testing.T) {
	if !Healthy(Evaluate(Gate, good())) {
		t.Error("a node that is well does not pass the gate")
	}
	for name, e := range map[string]Evidence{
		"no evidence": {Now: now()},
		"a crashing kubelet": with(func(e *Evidence) {
			e.Kubelet.Value.Restarts, e.Kubelet.Value.Since = 71, ago(time.Second)
		}),
		"credential unproved": with(func(e *Evidence) { e.Credential = Answer[string]{} }),
		"healthz unasked":     with(func(e *Evidence) { e.Healthz = Answer[struct{}]{} }),
		"a foreign address":   with(func(e *Evidence) { e.Wanted.Node.Kubelet.NodeIP = "203.0.113.7" }),
	} {
		if Healthy(Evaluate(Gate, e)) {
			t.Errorf("%s passes the gate", name)
		}
	}
	operators := with(func(e *Evidence) { e.Wanted.Node.Taints = []string{"x:NoSchedule"} })
	if c, ok := First(Evaluate(Gate, operators)); ok {
		t.Errorf("what only the operator can change holds the gate: %v", c)
	}
}

// First is the diagnosis: what explains the rest.
func TestFirst(t *testing.T) {
	up := Service{Active: true, PID: 1, Since: ago(time.Hour)}
	base := Evidence{Now: now(), Containerd: Answered(up, nil), Kubelet: Answered(up, nil)}
	change := func(f func(*Evidence)) Evidence {
		e := base
		f(&e)
		return e
	}
	missing := func(e *Evidence) { e.Node = Answered(kube.Node{}, notFound()) }
	tests := []struct {
		name, want string
		evidence   Evidence
	}{
		{"all is well", "", good()},
		{"containerd is down", ContainerdRunning, change(func(e *Evidence) {
			e.Containerd.Value.Active = false
			missing(e)
		})},
		{"kubelet is down", KubeletRunning, change(func(e *Evidence) {
			e.Kubelet.Value.Active = false
			missing(e)
		})},
		{"the network is down", APIServerReachable, change(func(e *Evidence) {
			e.Probe = Tried(&kube.Fault{Layer: kube.LayerTCP})
		})},
		{"no token", CredentialValid, change(func(e *Evidence) {
			e.Probe = Tried(errors.New("cannot get a token for kubelet: Entra ID is ill"))
		})},
		{"no one approves", CertificateIssued, change(func(e *Evidence) {
			e.CSRs = Answered([]kube.CSR{{State: "pending"}}, nil)
			missing(e)
		})},
		{"not registered", NodeRegistered, change(missing)},
		{"a small machine, and kubelet is down", KubeletRunning, change(func(e *Evidence) {
			e.Machine = good().Machine
			e.Machine.MemoryBytes = 1 << 30
			e.Wanted = good().Wanted
			e.Kubelet.Value.Active = false
		})},
		{"nothing is False, but it takes long", KubeletStable, with(func(e *Evidence) {
			e.Kubelet.Value.Since = ago(time.Second)
		})},
	}
	for _, tt := range tests {
		conditions := Evaluate(Watch, tt.evidence)
		slices.Reverse(conditions) // First has the order of the layers, whatever that of the list
		c, ok := First(conditions)
		if c.Type != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: first is %q (%s), want %q", tt.name, c.Type, c.Message, tt.want)
		}
	}
}

// What can be False on a node that works does not make it unhealthy.
func TestIll(t *testing.T) {
	for name, ill := range map[string]bool{KubeletRunning: true, NoChangeWaiting: false} {
		for _, status := range []Status{True, Unknown, False} {
			c := Condition{Type: name, Status: status}
			if got := c.Ill(); got != (ill && status == False) {
				t.Errorf("%s %s: ill is %v", name, status, got)
			}
		}
	}
}

// A condition that is explained by the logs is one whose message quotes them, and no other is.
func TestExplained(t *testing.T) {
	const line = "the last line of a log"
	down := Service{PID: 1, Since: ago(time.Hour), Restarts: 3}
	for name, e := range map[string]Evidence{
		"nothing is asked": {Now: now()},
		"no service runs": with(func(e *Evidence) {
			e.Containerd, e.Kubelet = Answered(down, nil), Answered(down, nil)
		}),
		"kubelet crashes": with(func(e *Evidence) {
			e.Kubelet.Value.Restarts, e.Kubelet.Value.Since = 71, ago(time.Second)
		}),
		"kubelet is ill":    with(func(e *Evidence) { e.Healthz = Tried(errors.New("PLEG")) }),
		"there is no Node":  with(func(e *Evidence) { e.Node.Err = notFound() }),
		"a firewall":        with(func(e *Evidence) { e.Machine.Barriers.Value = []Firewall{{}} }),
		"taints are other":  with(func(e *Evidence) { e.Wanted.Node.Taints = []string{"x:NoSchedule"} }),
		"the lease is over": with(func(e *Evidence) { e.Lease = Answered(lease(ago(time.Hour)), nil) }),
	} {
		e.Containerd.Value.Log, e.Kubelet.Value.Log = []string{line}, []string{line}
		for _, c := range Evaluate(Watch, e) {
			if quotes := strings.Contains(c.Message, line); quotes != c.Explained() {
				t.Errorf("%s: %s quotes a log: %v; %q", name, c.Type, quotes, c.Message)
			}
		}
	}
}

func TestMerge(t *testing.T) {
	old, later := ago(time.Hour), now()
	before := []Condition{
		{"NodeReady", True, "AsExpected", "", "", old, nil},
		{"KubeletRunning", False, "NotRunning", "one", OwnerMachine, old, nil},
		{"KubeletStable", False, "Restarting", "", OwnerMachine, old, nil},
	}
	after := []Condition{
		{"KubeletRunning", False, "NotRunning", "two", OwnerMachine, later, nil},
		{"KubeletStable", False, "PortInUse", "", OwnerMachine, later, nil},
		{"NodeReady", False, "KubeletNotReady", "", OwnerMachine, later, nil},
		{"LeaseRenewed", True, "AsExpected", "", "", later, nil},
	}
	want := slices.Clone(after)
	want[0].Since = old // another message is no other condition
	if diff := cmp.Diff(want, Merge(before, after)); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	if !after[0].Since.Equal(later) {
		t.Error("Merge changes its argument")
	}
}

func TestConditionJSON(t *testing.T) {
	c := Condition{"NodeReady", False, "KubeletNotReady", "PLEG", OwnerMachine, now(), nil}
	body, err := json.Marshal(c)
	const want = `{"type":"NodeReady","status":"False","reason":"KubeletNotReady",` +
		`"message":"PLEG","owner":"machine","since":"2026-11-21T12:00:00Z"}`
	if string(body) != want || err != nil {
		t.Errorf("JSON is %s, %v; want %s", body, err, want)
	}
}

// Reports take 1 KiB; a log may hold any bytes.
func TestClip(t *testing.T) {
	long := strings.Repeat("ø", 600) + "\xff"
	e := with(func(e *Evidence) { e.Trust = Tried(errors.New(long)) })
	message := condition(t, "ProgramTrusted", e).Message
	whole := utf8.ValidString(message) && strings.HasSuffix(message, "...")
	if len(message) > longestMessage || !whole {
		t.Errorf("the message has %d bytes: %q", len(message), message)
	}
}
