package stories

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/node"
)

// forwardSysctl is a parameter of the kernel that the daemon repairs only with the policy repair.
const forwardSysctl = "/proc/sys/net/ipv4/ip_forward"

// The daemon joins the cluster, and sends READY before it does anything.
func TestDaemonJoins(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		before := s.tree()
		s.cluster.set(func() { s.cluster.down = true })
		s.start()
		if ready := s.told("READY=1"); len(ready) != 1 {
			t.Fatalf("told %v", s.messages)
		}
		s.sleep(time.Hour)
		s.same(before)
		if status := s.told("STATUS="); len(status) == 0 {
			t.Error("systemd was not told why")
		}
		var pauses []time.Duration
		for i := 1; i < len(s.loads); i++ {
			pauses = append(pauses, s.loads[i].Sub(s.loads[i-1]))
		}
		for i, want := range []int{5, 10, 20, 40, 80, 160, 300, 300, 300} {
			w := time.Duration(want) * time.Second
			if len(pauses) <= i || pauses[i] < w/2 || pauses[i] > w*3/2 {
				t.Errorf("the pauses are %v; number %d is not about %s", pauses, i, w)
			}
		}
		s.cluster.set(func() { s.cluster.down = false })
		// the longest pause, 300 s and half of it, and a minute for the join
		s.until(8*time.Minute+30*time.Second, "the machine is a node", s.isReady)
		s.healthy("110")
		if c, bad := health.First(s.is().Conditions); bad && c.Status == health.False {
			t.Errorf("condition %+v", c)
		}
	})
}

// The daemon is restarted during an outage: it is in charge at once, reports drift, and repairs it,
// without a network (M6, M7).
func TestOutageBeforeRestart(t *testing.T) {
	for name, silence := range map[string]func(s *serviceStory){
		"refused":   func(s *serviceStory) { s.cluster.set(func() { s.cluster.down = true }) },
		"swallowed": func(s *serviceStory) { s.set(func() { s.hole = true }) },
	} {
		for _, p := range []string{"report", "repair"} {
			t.Run(name+" "+p, func(t *testing.T) {
				story(t, func(t *testing.T, s *serviceStory) {
					s.edit(policy(p))
					s.join()
					s.end()
					silence(s)
					s.set(func() { s.messages = nil })
					s.write(forwardSysctl, "0\n")
					s.start()
					if ready := s.told("READY=1"); len(ready) != 1 {
						t.Fatalf("told %v", s.messages)
					}
					if p == "repair" {
						s.until(2*time.Minute, "repaired", func() bool { return !s.reverted() })
						s.sleep(2 * time.Minute)
					}
					s.sleep(2 * time.Minute)
					drifts := s.drifts()
					if slices.Contains(drifts, "sysctl:net.ipv4.ip_forward") != (p == "report") {
						t.Errorf("drift is %v", drifts)
					}
					if c := s.condition(health.APIServerReachable); c.Status != health.False {
						t.Errorf("the condition is %+v", c)
					}
					if c := s.condition(health.NodeRegistered); c.Status != health.Unknown {
						t.Errorf("an API server that does not answer is not a missing Node: %+v", c)
					}
					if at := s.is().CheckedAt; time.Since(at) > 2*time.Minute {
						t.Errorf("checked last %s ago", time.Since(at))
					}
				})
			})
		}
	}
}

// A worker that hangs in a call stops the watchdog (M5).
func TestStuckWorker(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		release := make(chan struct{})
		t.Cleanup(func() { close(release) })
		s.onKubelet(func() error { <-release; return nil })
		fed := len(s.told("WATCHDOG=1"))
		s.sleep(15 * time.Minute)
		if again := len(s.told("WATCHDOG=1")); again != fed+20 {
			t.Errorf("fed %d times in 15 minutes", again-fed)
		}
		s.edit(pods(42))
		s.sleep(10 * time.Minute)
		fed = len(s.told("WATCHDOG=1"))
		s.sleep(30 * time.Minute)
		if again := len(s.told("WATCHDOG=1")); again != fed {
			t.Errorf("a stuck worker was fed %d times", again-fed)
		}
	})
}

// A worker that waits for an API server which never answers makes progress nevertheless: the
// watchdog is fed.
func TestWaitingWorkerIsFed(t *testing.T) {
	for name, joined := range map[string]bool{"join": false, "change": true} {
		t.Run(name, func(t *testing.T) {
			story(t, func(t *testing.T, s *serviceStory) {
				s.edit(readyTimeout("30m"))
				if joined {
					s.join()
					s.edit(readyTimeout("30m"), pods(42))
				}
				s.onKubelet(func() error { s.set(func() { s.hole = true }); return nil })
				if !joined {
					s.start()
				}
				s.until(time.Minute, "kubelet was started", func() bool {
					s.mu.Lock()
					defer s.mu.Unlock()
					return s.hole
				})
				fed := len(s.told("WATCHDOG=1"))
				s.sleep(15 * time.Minute)
				if again := len(s.told("WATCHDOG=1")); again < fed+10 {
					t.Errorf("fed %d times in 15 minutes of waiting", again-fed)
				}
				s.set(func() { s.hole = false })
				s.until(2*time.Minute, "the node is healthy", func() bool {
					return s.is().Ready == "True" && s.is().Transition == nil
				})
			})
		})
	}
}

// hold takes the lock like another verb.
func (s *serviceStory) hold(verb string) (release func()) {
	s.t.Helper()
	file, err := os.OpenFile(filepath.Join(s.root, saved.RunDir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = json.NewEncoder(file).Encode(host.Holder{PID: 4711, Verb: verb, Since: time.Now()})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return func() { file.Close() }
}

// While another verb runs, the daemon changes nothing and continues to watch; that is neither a
// failure nor recurring drift.
func TestBusyLock(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.edit(policy("repair"))
		s.join()
		release := s.hold("bootstrap")
		s.write(forwardSysctl, "0\n")
		s.sleep(2 * time.Minute)
		s.edit(policy("repair"), pods(42))
		s.sleep(4 * time.Minute)
		if is := maxPods(s.root); is != "110" || s.read(forwardSysctl) != "0\n" {
			t.Errorf("the node takes %s pods while another verb is at work", is)
		}
		if drifts := s.drifts(); !slices.Equal(drifts, []string{"sysctl:net.ipv4.ip_forward"}) {
			t.Errorf("drift is %v", drifts)
		}
		if c := s.condition(health.HostAsConfigured); c.Reason != "Drift" {
			t.Errorf("the condition is %+v", c)
		}
		release()
		s.until(15*time.Second, "applied", s.takes("42"))
		s.healthy("42")
	})
}

// A second daemon is refused, with the first one's process; the next one after the first has ended
// is not.
func TestSecondDaemon(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		_, err := change.Acquire(s.process(), saved.DaemonLockFile, "agent")
		locked, ok := errors.AsType[*host.LockedError](err)
		if !ok || locked.Holder.Verb != "agent" || locked.Holder.PID != os.Getpid() {
			t.Errorf("a second daemon ends with %v", err)
		}
		s.restart()
		s.healthy("110")
	})
}

// waiting makes the daemon wait for an API server that does not answer: for its join, or for the
// proof of a change.
func (s *serviceStory) waiting(joined bool) {
	s.t.Helper()
	s.edit(readyTimeout("20m"))
	if joined {
		s.join()
		s.edit(readyTimeout("20m"), pods(42))
	}
	silent := true
	s.onKubelet(func() error {
		s.cluster.set(func() { s.cluster.down = silent })
		return nil
	})
	if !joined {
		s.start()
	}
	s.sleep(time.Minute)
	s.cluster.set(func() { silent = false })
}

// While the daemon waits for a server, other verbs are accepted, and their changes are not undone.
func TestVerbsWhileWaiting(t *testing.T) {
	for name, joined := range map[string]bool{"join": false, "change": true} {
		t.Run("bootstrap during a "+name, func(t *testing.T) {
			story(t, func(t *testing.T, s *serviceStory) {
				s.waiting(joined)
				s.cluster.set(func() { s.cluster.down = false })
				in, err := s.load()
				if err != nil {
					t.Fatal(err)
				}
				err = s.run(func(ctx context.Context, a *change.Agent) error {
					_, err := change.Bootstrap(ctx, a, in)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				s.healthy(map[bool]string{false: "110", true: "42"}[joined])
			})
		})
		t.Run("unbootstrap during a "+name, func(t *testing.T) {
			story(t, func(t *testing.T, s *serviceStory) {
				before := s.tree()
				s.waiting(joined)
				s.cluster.set(func() { s.cluster.down = false })
				if err := s.unbootstrap(); err != nil {
					t.Fatal(err)
				}
				s.left()
				s.same(before)
			})
		})
	}
}

// The policies for drift.
func TestPolicies(t *testing.T) {
	for _, p := range []string{"report", "repair", "off"} {
		t.Run(p, func(t *testing.T) {
			story(t, func(t *testing.T, s *serviceStory) {
				s.edit(policy(p))
				s.join()
				s.harm()
				s.sleep(5 * time.Minute)
				repaired := s.read(forwardSysctl) != "0\n"
				if repaired != (p == "repair") {
					t.Errorf("repaired: %v", repaired)
				}
				drifts, want := s.drifts(), []string{
					"path:/usr/local/bin/kubelet", "path:/var/lib/kubelet/config.yaml",
					"sysctl:net.ipv4.ip_forward", "unit:kubelet.service",
				}
				if p != "report" {
					want = nil
				}
				if !slices.Equal(drifts, want) {
					t.Errorf("drift is %v, want %v", drifts, want)
				}
				status := map[string]health.Status{
					"report": health.False, "repair": health.True, "off": health.Unknown,
				}[p]
				if c := s.condition(health.HostAsConfigured); c.Status != status {
					t.Errorf("the condition is %+v, want %s", c, status)
				}
				if (s.is().Ready == "True") != repaired {
					t.Errorf("the node is %s", s.raw())
				}
			})
		})
	}
}

// The agent starts a kubelet that the boot did not start, since its disk came late, also under the
// policy report. A kubelet that the owner has stopped or disabled stays off.
func TestDiskThatComesLate(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		late := errors.New("dependency failed")
		s.onKubelet(func() error { s.mu.Lock(); defer s.mu.Unlock(); return late })
		runs := func() bool { return slices.Contains(s.systemd.Active(), node.KubeletUnit) }
		s.systemd.Vanish(node.KubeletUnit)
		s.sleep(30 * time.Minute)
		s.set(func() { late = nil })
		s.until(time.Hour, "kubelet is started", runs)
		s.healthy("110")
		for _, verb := range []host.Verb{host.Stop, host.Disable} {
			if err := s.systemd.Do(t.Context(), verb, node.KubeletUnit); err != nil {
				t.Fatal(err)
			}
			s.sleep(time.Hour)
			if runs() {
				t.Errorf("the agent starts a kubelet after its owner's %s", verb)
			}
			s.systemd.Vanish(node.KubeletUnit)
		}
	})
}

// A resource that another process keeps changing is repaired three times in an hour, by any number
// of processes and with clean checks in between (M8).
func TestRepairBudget(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.edit(policy("repair"))
		s.join()
		revert := func() bool {
			s.write(forwardSysctl, "0\n")
			s.sleep(2 * time.Minute)
			return s.read(forwardSysctl) != "0\n"
		}
		for i := range 3 {
			if !revert() {
				t.Fatalf("repair %d was not made", i)
			}
			s.sleep(10 * time.Minute)
			s.restart()
		}
		if revert() {
			t.Error("repaired a fourth time within an hour")
		}
		s.restart()
		s.sleep(5 * time.Minute)
		if s.read(forwardSysctl) != "0\n" {
			t.Error("the next daemon has repaired it")
		}
		if c := s.condition(health.HostAsConfigured); c.Reason != "RepairBudgetExhausted" {
			t.Errorf("the condition is %+v", c)
		}
		if !strings.Contains(s.log.String(), "drift keeps coming back") {
			t.Error("the log does not tell")
		}
		s.write("/etc/modules-load.d/aks-flex-node.conf", "changed")
		s.until(2*time.Minute, "something else is repaired", func() bool {
			return s.read("/etc/modules-load.d/aks-flex-node.conf") != "changed"
		})
		right := s.read("/etc/modules-load.d/aks-flex-node.conf")
		s.write(forwardSysctl, "1\n")
		release := s.hold("bootstrap")
		s.write("/etc/modules-load.d/aks-flex-node.conf", "changed")
		s.sleep(2 * time.Minute)
		if c := s.condition(health.HostAsConfigured); c.Reason != "Drift" {
			t.Errorf("the condition of what is not exhausted is %+v", c)
		}
		release()
		s.until(2*time.Minute, "it is repaired", func() bool {
			return s.read("/etc/modules-load.d/aks-flex-node.conf") == right
		})
		s.write(forwardSysctl, "0\n")
		s.sleep(30 * time.Minute)
		s.until(30*time.Minute, "repaired after an hour", func() bool { return !s.reverted() })
		s.healthy("110")
	})
}

// A check of a healthy node runs no program, reads no journal, and writes only its own status. It
// requests the Node once, and each unit twice: its state, and its drift.
func TestCheckIsCheap(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		s.sleep(5 * time.Minute)
		before, touches := s.tree(), s.touched()
		s.set(func() { s.journals, s.runs, s.checks = 0, 0, 0; clear(s.units) })
		s.cluster.set(func() { s.cluster.reads = 0 })
		checks := len(s.told("WATCHDOG=1"))
		s.sleep(time.Hour)
		if s.journals != 0 || s.runs != 0 {
			t.Errorf("in an hour: %d journals read, %d programs run", s.journals, s.runs)
		}
		if again := s.touched() - touches; again > 150 || len(s.told("WATCHDOG=1")) == checks {
			t.Errorf("in an hour: %d changes of the machine", again)
		}
		for name, n := range s.units {
			if n > 2*s.checks {
				t.Errorf("in an hour: %d checks, and %d questions for %s", s.checks, n, name)
			}
		}
		const watches = 20 // which begin with the Node as it is
		if s.cluster.reads > s.checks+watches || s.checks < 45 {
			t.Errorf("in an hour: %d checks, the Node was read %d times", s.checks, s.cluster.reads)
		}
		s.same(before)
		s.sick.Store(true)
		s.sleep(5 * time.Minute)
		if s.journals == 0 {
			t.Error("the journal is not read when kubelet is sick")
		}
	})
}

// A change after many checks is found, even if only the content of a file differs.
func TestDriftOfSameSize(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.edit(policy("report"))
		s.join()
		s.sleep(10 * time.Minute)
		const file = "/var/lib/kubelet/config.yaml"
		info, err := os.Stat(filepath.Join(s.root, file))
		if err != nil {
			t.Fatal(err)
		}
		s.write(file, strings.Replace(s.read(file), `"maxPods": 110`, `"maxPods": 111`, 1))
		if err := os.Chtimes(filepath.Join(s.root, file), info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
		s.sleep(2 * time.Minute)
		if drifts := s.drifts(); !slices.Contains(drifts, "path:"+file) {
			t.Errorf("drift is %v", drifts)
		}
	})
}
