package stories

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// deleteNode deletes the Node like `kubectl delete node`.
func (s *serviceStory) deleteNode() { s.cluster.set(func() { s.cluster.remove("edge-1") }) }

// back fails unless the Node is registered again while its pods are alive, with its pod subnet and
// labels.
func (s *serviceStory) back(when string) {
	s.t.Helper()
	took := s.until(30*time.Second, when+": the Node is registered again", s.registered)
	s.t.Logf("%s: registered again after %s", when, took)
	s.cluster.set(func() {
		n := s.cluster.nodes["edge-1"]
		if n.Spec.PodCIDR != "10.244.7.0/24" || n.Labels["example.com/site"] != "north" {
			s.t.Errorf("%s: the Node is %+v", when, n)
		}
	})
}

// The watch finds a deleted Node, at any time, and it is registered again while its pods are alive
// (R1).
func TestNodeDeleted(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.edit(policy("repair"))
		s.join()
		s.sleep(10 * time.Second)
		s.deleteNode()
		s.back("just after the join")
		s.healthy("110")

		s.rests(2*time.Hour + 123*time.Second)
		s.deleteNode()
		s.back("hours later")
		s.healthy("110")

		s.cluster.set(func() { s.cluster.down = true })
		s.rests(time.Hour)
		s.cluster.set(func() { s.cluster.down = false })
		s.deleteNode()
		s.back("when the API server is back")
		s.healthy("110")
	})
}

// A Node is registered again three times in an hour; then it is only reported as missing.
func TestNodeDeletedAgainAndAgain(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.edit(policy("repair"))
		s.join()
		for i := range 3 {
			s.deleteNode()
			s.back(fmt.Sprintf("deletion %d", i+1))
			s.healthy("110")
		}
		started := s.started()
		s.deleteNode()
		s.sleep(40 * time.Minute)
		if s.cluster.has("edge-1") || started() != 0 {
			t.Errorf("registered again a fourth time; kubelet was started %d times", started())
		}
		if c := s.condition(health.NodeRegistered); c.Reason != "NodeMissing" {
			t.Errorf("the condition is %+v", c)
		}
		s.until(30*time.Minute, "registered again an hour later", s.registered)
	})
}

// With the policy report a missing Node is reported within seconds, and nothing else is done; the
// API server gets few requests about it.
func TestNodeMissingIsReported(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		started := s.started()
		s.deleteNode()
		s.until(10*time.Second, "reported", func() bool {
			return s.condition(health.NodeRegistered).Reason == "NodeMissing"
		})
		s.sleep(time.Minute)
		touches := s.touched()
		s.sleep(time.Hour)
		if s.cluster.has("edge-1") || started() != 0 {
			t.Errorf("the Node is registered again; kubelet was started %d times", started())
		}
		if drifts := fmt.Sprint(s.drifts()); !strings.Contains(drifts, "node:registration:edge-1") {
			t.Errorf("drift is %s", drifts)
		}
		if s.touched()-touches > 150 { // a status takes two
			t.Errorf("in an hour %d changes of the machine", s.touched()-touches)
		}
		if _, err := s.drift(true); err != nil {
			t.Fatal(err)
		}
		s.healthy("110")
	})
}

// An API server that does not answer is not a missing Node, and causes no repair.
func TestSilenceIsNoDeletion(t *testing.T) {
	for name, silence := range map[string]func(s *serviceStory, on bool){
		"refused":   func(s *serviceStory, on bool) { s.cluster.set(func() { s.cluster.down = on }) },
		"swallowed": func(s *serviceStory, on bool) { s.set(func() { s.hole = on }) },
		"unauthorized": func(s *serviceStory,
			on bool) {
			s.cluster.set(func() { s.cluster.refused = on })
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(t *testing.T, s *serviceStory) {
				s.edit(policy("repair"))
				s.join()
				started := s.started()
				silence(s, true)
				s.sleep(20 * time.Minute)
				if c := s.condition(health.NodeRegistered); c.Status != health.Unknown || len(s.drifts()) > 0 {
					t.Errorf("the condition is %+v, drift is %v", c, s.drifts())
				}
				if started() != 0 {
					t.Error("kubelet was restarted")
				}
				silence(s, false)
				s.healthy("110")
			})
		})
	}
}

// The daemon finishes an unbootstrap that was killed anywhere, without a configuration, and then
// ends.
func TestKilledUnbootstrap(t *testing.T) {
	for _, n := range []int{0, 3, 9, 20, 40, 60, 80} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			story(t, func(t *testing.T, s *serviceStory) {
				before := s.tree()
				s.join()
				s.end()
				leave := func(ctx context.Context, a *change.Agent) error {
					how := change.Leave{Options: transition.Options{DrainTimeout: time.Minute}}
					_, err := change.Unbootstrap(ctx, a, nil, how)
					return err
				}
				if !s.killed(t, n, func() error { return s.run(leave) }) {
					t.Fatal("it ends before it is killed")
				}
				s.save([]byte("{"))
				s.start()
				if n == 0 { // nothing was written down
					s.sleep(time.Minute)
					s.healthy("110")
					return
				}
				s.left()
				s.same(before)
				if s.cluster.has("edge-1") {
					t.Error("the Node is still in the cluster")
				}
			})
		})
	}
}

// After an unbootstrap by hand, a running daemon leaves the machine alone.
func TestUnbootstrapUnderTheDaemon(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		before := s.tree()
		s.edit(policy("repair"))
		s.join()
		if err := s.unbootstrap(); err != nil {
			t.Fatal(err)
		}
		s.edit(pods(42)) // which has the daemon reconcile rather than check
		s.left()
		s.same(before)
	})
}

// A damaged generation does not prevent unbootstrap.
func TestDamagedGeneration(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		before := s.tree()
		s.join()
		s.end()
		s.dropGeneration()
		s.start()
		s.sleep(10 * time.Minute)
		if s.systemd.Running("kubelet.service") == "" {
			t.Error("kubelet does not run")
		}
		s.end()
		if err := s.unbootstrap(); err != nil {
			t.Fatal(err)
		}
		s.same(before)
	})
}
