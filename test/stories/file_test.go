package stories

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// bad makes a kubelet with sickPods unhealthy in some way.
type bad struct {
	name   string
	sicken func(s *serviceStory)
	reason string // a word of why it is rejected
}

// sickPods is the maxPods of an unhealthy kubelet.
const sickPods = "43"

func badOnes() []bad {
	return []bad{
		{name: "kubelet does not start", reason: "this kubelet does not start",
			sicken: func(s *serviceStory) {
				s.onKubelet(func() error {
					if maxPods(s.root) == sickPods {
						return errors.New("this kubelet does not start")
					}
					return nil
				})
			}},
		{name: "kubelet crashes again and again", reason: health.KubeletStable,
			sicken: func(s *serviceStory) {
				go func() {
					for every := time.NewTicker(2 * time.Second); ; {
						select {
						case <-s.t.Context().Done():
							return
						case <-every.C:
						}
						if maxPods(s.root) == sickPods {
							s.systemd.Crash("kubelet.service")
						}
					}
				}()
			}},
		{name: "the Node does not get Ready", reason: health.NodeReady, sicken: func(s *serviceStory) {
			ready := s.cluster.ready
			s.cluster.set(func() {
				s.cluster.ready = func(name string) bool { return maxPods(s.root) != sickPods && ready(name) }
			})
		}},
	}
}

// A configuration that does not work is rolled back once, with the reason, and is not tried again
// until its content changes, not even by the next daemon; the node continues as before, and is
// checked (B1, R6).
func TestBadConfiguration(t *testing.T) {
	for _, b := range badOnes() {
		t.Run(b.name, func(t *testing.T) {
			story(t, func(t *testing.T, s *serviceStory) {
				s.join()
				good := s.file
				started := s.started()
				b.sicken(s)
				wrong := s.edit(pods(43))
				s.until(10*time.Minute, "rejected", func() bool { return len(s.is().Rejected) > 0 })
				s.healthy("110")
				r := s.is().Rejected
				if len(r) != 1 || !strings.Contains(r[0].Reason, b.reason) {
					t.Fatalf("rejected is %+v", r)
				}
				if c := s.condition("ConfigurationAccepted"); !strings.Contains(c.Message, b.reason) {
					t.Errorf("the condition is %+v", c)
				}
				tries := started()
				s.sleep(20 * time.Minute)
				s.restart()
				s.sleep(20 * time.Minute)
				s.healthy("110")
				if again := started(); again != tries || tries > 3 {
					t.Errorf("kubelet was started %d times, and %d times later", tries, again-tries)
				}
				s.edit(pods(44))
				s.healthy("44")
				if c := s.condition("ConfigurationAccepted"); c.Status != health.True {
					t.Errorf("the condition is %+v when another configuration is in force", c)
				}
				tries = started()
				s.save(wrong)
				s.healthy("44")
				if c := s.condition("ConfigurationAccepted"); c.Reason != "Rejected" {
					t.Errorf("the condition is %+v when it is wanted again", c)
				}
				if again := started(); again != tries {
					t.Error("the same content was tried again")
				}
				s.save(good)
				s.healthy("110")
			})
		})
	}
}

// A rejected configuration is not reported any more once the applied one follows it.
func TestBackToApplied(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		good := s.file
		badOnes()[0].sicken(s)
		s.edit(pods(43))
		s.until(10*time.Minute, "rejected", func() bool { return len(s.is().Rejected) > 0 })
		s.save(good)
		s.healthy("110")
		c, rejected := s.condition("ConfigurationAccepted"), s.is().Rejected
		if c.Status != health.True || len(rejected) != 1 {
			t.Errorf("the condition is %+v, rejected are %+v", c, rejected)
		}
	})
}

// A changed file is applied within seconds.
func TestChangedFile(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		s.edit(pods(42), func(c map[string]any) {
			c["node"].(map[string]any)["labels"] = map[string]any{"example.com/site": "south"}
		})
		took := s.until(time.Minute, "applied", s.takes("42"))
		if took > 10*time.Second {
			t.Errorf("applied after %s", took)
		}
		s.healthy("42")
		s.cluster.set(func() {
			if site := s.cluster.nodes["edge-1"].Labels["example.com/site"]; site != "south" {
				t.Errorf("the label is %q", site)
			}
		})
	})
}

// A change that waits for its proof is given up when the file is changed back, and the node is
// unchanged.
func TestChangedBack(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		good := s.file
		badOnes()[2].sicken(s)
		s.edit(pods(43), readyTimeout("1h"))
		s.until(time.Minute, "under way", s.takes(sickPods))
		s.sleep(5 * time.Minute)
		s.save(good)
		s.healthy("110")
		if r := s.is().Rejected; len(r) > 0 {
			t.Errorf("rejected is %+v", r)
		}
	})
}

// A failed download changes nothing, rejects nothing, and is retried.
func TestFailedDownload(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		before := s.tree()
		other := []byte("#!/bin/sh\n# another runc\n")
		sum := sha256.Sum256(other)
		s.edit(pods(42), func(c map[string]any) {
			overrides := c["artifacts"].(map[string]any)["overrides"].(map[string]any)
			overrides["runc"] = map[string]any{"sha256": hex.EncodeToString(sum[:])}
		})
		const runc = "github.com/opencontainers/runc/releases/download/v1.3.4/runc." + runtime.GOARCH
		mirrored := filepath.Join(s.store, runc)
		if err := os.Remove(mirrored); err != nil {
			t.Fatal(err)
		}
		s.sleep(30 * time.Minute)
		if maxPods(s.root) != "110" || s.is().Ready != "True" || len(s.is().Rejected) > 0 {
			t.Errorf("after a failed download: %s", s.raw())
		}
		if after := s.tree(); withoutState(after) != withoutState(before) {
			t.Error("a failed download has changed the machine")
		}
		tries := len(s.loads)
		if tries < 8 {
			t.Errorf("%d tries in half an hour", tries)
		}
		if err := os.WriteFile(mirrored, other, 0o644); err != nil {
			t.Fatal(err)
		}
		s.until(6*time.Minute+time.Minute, "applied", s.takes("42"))
		s.healthy("42")
	})
}

// withoutState returns a tree without the agent's own records and its store.
func withoutState(tree string) string {
	var lines []string
	for line := range strings.SplitSeq(tree, "\n") {
		ours := strings.HasPrefix(line, saved.StateDir) || strings.HasPrefix(line, "/opt/aks-flex-node")
		if !ours {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// A configuration that cannot be read leaves the node alone: it is checked and repaired as before,
// and the reason is reported until a configuration can be read.
func TestUnreadable(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON": "{", "invalid": `{"node": {"maxPods": -1}}`, "empty": "",
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(t *testing.T, s *serviceStory) {
				s.edit(policy("repair"))
				s.join()
				started := s.started()
				s.save([]byte(text))
				s.healthy("110")
				if c := s.condition("ConfigurationAccepted"); c.Status != health.False {
					t.Errorf("the condition is %+v", c)
				}
				s.write(forwardSysctl, "0\n")
				s.until(2*time.Minute, "repaired", func() bool { return !s.reverted() })
				s.restart()
				s.healthy("110")
				if started() != 0 {
					t.Error("kubelet was restarted")
				}
				s.edit(pods(42))
				s.healthy("42")
				if c := s.condition("ConfigurationAccepted"); c.Status != health.True {
					t.Errorf("the condition is %+v", c)
				}
			})
		})
	}
}

// A configuration that cannot work on this machine is refused before any change, and reported.
func TestRefusedByPreflight(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		started := s.started()
		s.edit(func(c map[string]any) {
			c["node"].(map[string]any)["kubelet"].(map[string]any)["nodeIP"] = "203.0.113.7"
		})
		s.sleep(time.Hour)
		s.healthy("110")
		if c := s.condition("ConfigurationAccepted"); !strings.Contains(c.Message, "203.0.113.7") {
			t.Errorf("the condition is %+v", c)
		}
		if started() != 0 {
			t.Error("kubelet was restarted")
		}
		pause := func(d time.Duration) {
			if _, err := change.SetPause(t.Context(), s.process(), d, "maintenance"); err != nil {
				t.Fatal(err)
			}
		}
		pause(time.Hour)
		s.edit(pods(42))
		s.until(2*time.Minute, "the next one waits", s.waits(health.MachinePaused, "maintenance"))
		if c := s.condition("ConfigurationAccepted"); c.Status != health.True {
			t.Errorf("the refused configuration was replaced; the condition is %+v", c)
		}
		pause(0)
		s.healthy("42")
	})
}

// A configuration that does not fit the cluster yet is tried again, and applied once it fits.
func TestRefusedUntilItFits(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		s.edit(func(c map[string]any) { s.kubernetes("1.36.1", "1.36.1")(c); pods(42)(c) })
		s.sleep(time.Hour)
		s.healthy("110")
		if c := s.condition("ConfigurationAccepted"); !strings.Contains(c.Message, "1.36.1") {
			t.Errorf("the condition is %+v", c)
		}
		s.cluster.set(func() { s.cluster.version = "v1.36.1" })
		s.until(2*time.Hour, "applied", func() bool { return maxPods(s.root) == "42" })
	})
}

// While the outcome of a change is unknown, it is under way; the node is still checked, and the
// change is committed when the API server answers.
func TestUndecided(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		down := true
		s.onKubelet(func() error { s.cluster.set(func() { s.cluster.down = down }); return nil })
		s.edit(pods(42))
		s.until(5*time.Minute, "under way", func() bool { return s.is().Transition != nil })
		s.sleep(time.Hour)
		status := s.is()
		checked := time.Since(status.CheckedAt) < 10*time.Minute
		if status.Transition == nil || len(status.Rejected) > 0 || !checked {
			t.Errorf("status: %s", s.raw())
		}
		if c := s.condition(health.HostAsConfigured); c.Reason != "ChangeInProgress" {
			t.Errorf("the condition is %+v", c)
		}
		s.cluster.set(func() { down, s.cluster.down = false, false })
		s.until(8*time.Minute, "committed", func() bool { return s.is().Transition == nil })
		s.healthy("42")
	})
}

// The name of the machine may change after the join; the Node's does not (m4).
func TestRenamed(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		unnamed := func(c map[string]any) { delete(c["agent"].(map[string]any), "nodeName") }
		s.edit(unnamed)
		s.join()
		started := s.started()
		s.set(func() { s.host = "renamed" })
		s.restart()
		s.healthy("110")
		if name := s.is().NodeName; name != "edge-1" || started() != 0 {
			t.Errorf("the node is %s, kubelet was started %d times", name, started())
		}
		s.edit(unnamed, pods(42))
		s.healthy("42")
		if s.cluster.has("renamed") || !s.cluster.has("edge-1") {
			t.Error("the Node has another name")
		}
	})
}
