package health

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

// kubelet is good evidence with another kubelet service.
func kubelet(s Service) Evidence {
	return with(func(e *Evidence) { e.Kubelet = Answered(s, nil) })
}

func TestContainerdRunning(t *testing.T) {
	down := Service{Log: []string{"containerd: failed to load TOML: /etc/containerd/conf.d/x.toml"}}
	check(t, ContainerdRunning, []expect{
		blank("NotChecked"),
		{"down", with(func(e *Evidence) { e.Containerd = Answered(down, nil) }), False,
			"NotRunning", OwnerMachine, "conf.d/x.toml"},
		{"stopped", with(func(e *Evidence) { e.Containerd = Answered(Service{}, nil) }), False,
			"NotRunning", OwnerMachine, "`aks-flex-node drift --repair`"},
		{"without CRI", with(func(e *Evidence) {
			e.Runtime = Tried(fmt.Errorf("asked: %w", kube.ErrNoRuntimeService))
			e.Containerd.Value.Log = []string{
				`msg="failed to load plugin" error="too many open files" id=io.containerd.cri.v1.runtime`,
				`msg="failed to load plugin" error="no btrfs" id=io.containerd.snapshotter.v1.btrfs`,
				`msg="containerd successfully booted in 0.05s"`,
			}
		}), False, "RuntimeServiceMissing", OwnerMachine, "too many open files"},
		{"down, and so not asked", with(func(e *Evidence) {
			e.Containerd, e.Runtime = Answered(down, nil), Answer[struct{}]{}
		}), False, "NotRunning", OwnerMachine, "conf.d/x.toml"},
		{"it hangs", with(func(e *Evidence) {
			e.Runtime, e.Unanswered = Tried(kube.ErrRuntimeSilent), 2
		}), False, "Hung", OwnerMachine, "dmesg"},
		{"it was slow once", with(func(e *Evidence) {
			e.Runtime, e.Unanswered = Tried(kube.ErrRuntimeSilent), 1
		}), True, "", "", ""},
		{"its socket is not there yet", with(func(e *Evidence) {
			e.Runtime, e.Unanswered = Tried(errors.New("connection refused")), 1
		}), True, "", "", ""},
		{"it exits again and again", with(func(e *Evidence) {
			e.Runtime, e.Unanswered = Tried(errors.New("connection refused")), 2
			e.Containerd.Value.Log = down.Log
		}), False, "NotAnswering", OwnerMachine, "conf.d/x.toml"},
		{"systemd is silent", with(func(e *Evidence) { e.Containerd = failed[Service]() }), Unknown,
			"NotAnswered", "", "etcd is down"},
	})
}

func TestKubeletRunning(t *testing.T) {
	check(t, KubeletRunning, []expect{
		blank("NotChecked"),
		{"stopped", kubelet(Service{}), False, "NotRunning", OwnerMachine, "does not run"},
		{"its last words", kubelet(Service{Log: []string{"  bye "}}), False, "NotRunning",
			OwnerMachine, "does not run: bye; "},
		{"a flag", kubelet(Service{Log: []string{
			`"command failed" err="failed to parse kubelet flag: unknown flag: --pod-infra"`,
		}}), False, "UnknownFlag", OwnerMachine, "KUBELET_EXTRA_ARGS"},
		{"a containerd without CRI", kubelet(Service{Log: []string{
			`"command failed" err="failed to run Kubelet: validate service connection: validate CRI v1 ` +
				`runtime API for endpoint: rpc error: code = Unimplemented desc = unknown service ` +
				`runtime.v1.RuntimeService"`,
		}}), False, "RuntimeServiceMissing", OwnerMachine, "without its CRI plugin"},
	})
}

// R6: a kubelet that crashes every other second posts Ready each time, and was committed as
// healthy.
func TestKubeletStable(t *testing.T) {
	runs := func(age time.Duration, restarts int, log ...string) Evidence {
		return kubelet(Service{Active: true, PID: 9, Since: ago(age), Restarts: restarts, Log: log})
	}
	log := func(line string) Evidence { return runs(time.Second, 3, "one", line, "other") }
	const reason, owner = "Restarting", OwnerMachine
	check(t, KubeletStable, []expect{
		blank("NotChecked"),
		{"just started", runs(3*time.Second, 0), Unknown, "Settling", "", "3s ago"},
		{"settled", runs(10*time.Second, 0), True, "", "", ""},
		{"crashes every other second", runs(time.Second, 71, "bye"), False, reason, owner,
			"71 times, and was last started 1s ago: bye"},
		{"an error, and a new process has logged more", runs(time.Second, 3,
			`E1125 15:21:09.949584    1644 run.go:72] "command failed" err="invalid configuration"`,
			`I1125 15:21:10.012345    1651 server.go:212] "Kubelet version" kubeletVersion="v1.34.4"`),
			False, reason, owner, `ago: "command failed" err="invalid configuration"; read`},
		{"between two crashes", kubelet(Service{Restarts: 1}), False, reason, owner, "1 time,"},
		{"crashes every minute", runs(50*time.Second, 8), False, reason, owner, "8 times"},
		{"one crash is long ago", runs(time.Hour, 1), True, "", "", ""},
		{"many crashes are long ago", runs(time.Hour, 5000), True, "", "", ""},
		{"stopped", kubelet(Service{}), Unknown, "KubeletNotRunning", "", ""},
		{"another settling time", with(func(e *Evidence) {
			e.Wanted.Settling = 2 * time.Hour
		}), Unknown, "Settling", "", "2h0m0s"},
		{"too much reserved", log(`"invalid Node Allocatable configuration"`), False,
			"ReservationsTooLarge", OwnerConfiguration, "lower node.kubelet.kubeReserved"},
		{"cgroup v1", log(`err="kubelet is configured to not run on a host using cgroup v1"`), False,
			"CgroupV1", owner, "failCgroupV1"},
		{"cgroup v1 that is allowed", log(`"Warning: cgroup check" err="cgroup v1 detected. cgroup v1 ` +
			`support is deprecated"`), False, reason, owner, "other"},
		{"no inotify instance", log(`err="inotify_init: too many open files"`), False,
			"InotifyExhausted", owner, "fs.inotify.max_user_instances"},
		{"swap", log(`err="running with swap on is not supported"`), False,
			"SwapOn", owner, "swapon --show"},
		{"a port", log(`err="listen tcp 0.0.0.0:10250: bind: address already in use"`), False,
			"PortInUse", owner, "10250"},
		{"a kernel parameter", log(`err="invalid kernel flag: vm/overcommit_memory"`), False,
			"KernelParameter", owner, "aks-flex-node drift"},
		{"a symptom of registering is another matter", log("x509: unknown authority"), False,
			reason, owner, "other"},
	})
}

func TestKubeletHealthy(t *testing.T) {
	healthz := func(since time.Duration) Evidence {
		return with(func(e *Evidence) {
			e.Healthz = Tried(errors.New("http://127.0.0.1:10248/healthz answers 500: syncloop"))
			e.Kubelet.Value.Since = ago(since)
		})
	}
	check(t, KubeletHealthy, []expect{
		blank("NotChecked"),
		{"ill", healthz(time.Hour), False, "Unhealthy", OwnerMachine, "syncloop"},
		{"starting", healthz(time.Second), Unknown, "Starting", "", "syncloop"},
	})
}
