package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// joinTainted registers a flex node with taints, as its kubelet does.
func (c *fakeCluster) joinTainted(name string, taints ...string) {
	n := flexNode(name)
	n.Spec.Taints = taintsIn(strings.Join(taints, ","))
	c.add(n)
}

// taints returns the taints of a Node, sorted.
func (c *fakeCluster) taints(name string) string {
	n, err := c.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return "no Node"
	}
	var list []string
	for _, t := range n.Spec.Taints {
		list = append(list, writeTaint(t))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// taintAs sets a Node's taints like another client, with the time.
func (c *fakeCluster) taintAs(name string, taints ...string) {
	c.edit(name, func(n *corev1.Node) {
		n.Spec.Taints = taintsIn(strings.Join(taints, ","))
		for i := range n.Spec.Taints {
			n.Spec.Taints[i].TimeAdded = &metav1.Time{Time: time.Now()}
		}
	})
	pass(2 * readinessPause)
}

// want sets the taints that the owner wants.
func (w *world) want(name string, taints ...string) {
	w.put(factoryID, name, flexnode.Desired{NodeConfig: flexnode.NodeConfig{Taints: taints}})
	pass(2 * readinessPause)
}

// patches counts the changes of Nodes by the provider.
func patches(c *fakeCluster) func() int64 {
	var n atomic.Int64
	c.PrependReactor("patch", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
		n.Add(1)
		return false, nil, nil
	})
	return n.Load
}

const nodeUnreachable = "node.kubernetes.io/unreachable:NoExecute"

// A Node gets the taints that its owner wants, and their changes, also if others remove or change
// them. It keeps all others: those that are not an owner's to set, those that the owner wants with
// another effect, and those that he wants too, or with another value.
func TestTaints(t *testing.T) {
	const ops = nodeUnreachable + " ops=maintenance:NoSchedule"
	for name, steps := range map[string][]struct {
		who, sets, result string // the owner wants, kubelet registers, or another client sets taints
		patches           int64  // by the provider
	}{
		"of the owner": {
			{"owner", "edge=true:NoSchedule", "no Node", 0},
			{"kubelet", "edge=true:NoSchedule", "edge=true:NoSchedule", 0},
			{"another", "edge=true:NoSchedule " + ops, "edge=true:NoSchedule " + ops, 0},
			{"owner", "edge=true:NoSchedule gpu:NoExecute",
				"edge=true:NoSchedule gpu:NoExecute " + ops, 1},
			{"owner", "edge=false:NoSchedule", "edge=false:NoSchedule " + ops, 1},
			{"owner", "", ops, 1},
		},
		"of others": {
			{"owner", "edge=true:NoSchedule " + nodeUnreachable, "no Node", 0},
			{"kubelet", "edge=true:NoSchedule edge=true:NoExecute " + nodeUnreachable,
				"edge=true:NoExecute edge=true:NoSchedule " + nodeUnreachable, 0},
			{"another", "", "edge=true:NoSchedule", 1},
			{"another", "edge=true:NoExecute " + nodeUnreachable, // which is not restored at once again
				"edge=true:NoExecute " + nodeUnreachable, 0},
			{"owner", "", "edge=true:NoExecute " + nodeUnreachable, 0},
		},
		"that others have too": {
			{"owner", "own:NoSchedule", "no Node", 0},
			{"kubelet", "own:NoSchedule", "own:NoSchedule", 0},
			{"another", "own:NoSchedule ops:NoSchedule site=a:NoSchedule",
				"ops:NoSchedule own:NoSchedule site=a:NoSchedule", 0},
			{"owner", "ops:NoSchedule own:NoSchedule site=b:NoSchedule",
				"ops:NoSchedule own:NoSchedule site=a:NoSchedule", 0},
			{"owner", "new:NoSchedule", "new:NoSchedule ops:NoSchedule site=a:NoSchedule", 1},
			{"owner", "site=b:NoSchedule", "ops:NoSchedule site=a:NoSchedule", 1},
			{"another", "", "site=b:NoSchedule", 1},
			{"owner", "", "", 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
				count := patches(c)
				for _, s := range steps {
					before, sets := count(), strings.Fields(s.sets)
					switch s.who {
					case "owner":
						w.want("edge-1", sets...)
					case "kubelet":
						c.joinTainted("edge-1", sets...)
					case "another":
						c.taintAs("edge-1", sets...)
					}
					what := fmt.Sprintf("after %s: %q", s.who, s.sets)
					equal(t, what, c.taints("edge-1"), s.result)
					equal(t, "patches "+what, count()-before, s.patches)
				}
				n := must(c.CoreV1().Nodes().Get(t.Context(), "edge-1", metav1.GetOptions{}))
				for _, left := range n.Spec.Taints {
					equal(t, "the time of another's taint is lost", left.TimeAdded == nil, false)
				}
				before := count()
				pass(time.Hour)
				equal(t, "patches of what is as it is wanted", count(), before)
				status := must(w.store.Status.Get(t.Context(), factory+"/edge-1")).Value
				if status.Ready == nil || len(status.Taints) > 0 {
					t.Errorf("%+v", status)
				}
			})
		})
	}
}

// Taints that a webhook removes each time are set again, less and less often; a later change by the
// owner is not delayed.
func TestTaintsThatAreStripped(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		count := patches(c)
		c.PrependReactor("patch", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
			go func() {
				time.Sleep(time.Millisecond)
				c.edit("edge-1", func(n *corev1.Node) { n.Spec.Taints = nil })
			}()
			return false, nil, nil
		})
		c.joinTainted("edge-1")
		w.want("edge-1", "edge=true:NoSchedule")
		pass(30 * time.Minute)
		if n := count(); n < 8 || n > 20 {
			t.Errorf("set %d times in half an hour", n)
		}
		before := count()
		w.want("edge-1", "edge=false:NoSchedule")
		equal(t, "another wish has to wait", count() == before, false)
		pass(time.Second + readinessPause/2) // between two attempts
	})
}

// Only the Nodes of flex nodes are changed, and a concurrent change by another client is not
// overwritten: a taint that it sets just before the provider does is not the provider's.
func TestTaintsOfTheSameMoment(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.want("edge-2", "edge:NoSchedule")
		c.join("edge-2", corev1.ConditionTrue) // it has not the label of a flex node
		equal(t, "another's Node", c.taints("edge-2"), "")
		c.joinTainted("edge-1")
		w.want("edge-1")
		conflicts, sent := 2, 0
		c.PrependReactor("patch", "nodes", func(a ktesting.Action) (bool, runtime.Object, error) {
			text := string(a.(ktesting.PatchAction).GetPatch())
			if !strings.Contains(text, `"resourceVersion"`) || !strings.Contains(text, `"uid"`) {
				t.Errorf("the patch depends on nothing: %s", text)
			}
			if sent++; sent > conflicts {
				return false, nil, nil
			}
			n := flexNode("edge-1")
			n.Spec.Taints = taintsIn("ops:NoSchedule")
			must(0, c.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), n, ""))
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "x", nil)
		})
		w.want("edge-1", "ops:NoSchedule", "own:NoSchedule")
		pass(time.Second)
		equal(t, "wanted too", c.taints("edge-1"), "ops:NoSchedule own:NoSchedule")
		equal(t, "patches", sent, conflicts+1)
		w.want("edge-1")
		equal(t, "taken away", c.taints("edge-1"), "ops:NoSchedule")
	})
}

// A cluster that forbids it gets few attempts. A refused taint was not set: a client that sets it
// by hand meanwhile keeps it.
func TestTaintsAreForbidden(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		var allowed atomic.Bool
		refused := 0
		c.PrependReactor("patch", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
			if !allowed.Load() {
				refused++
			}
			return !allowed.Load(), nil,
				apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "x", nil)
		})
		c.joinTainted("edge-1")
		w.want("edge-1", "edge:NoSchedule", "gpu:NoSchedule")
		for i := range 60 {
			c.taintAs("edge-1", []string{"more:NoSchedule"}[:i%2]...)
		}
		if refused == 0 || refused > 4 {
			t.Errorf("refused %d times in a minute", refused)
		}
		c.taintAs("edge-1", "edge:NoSchedule")
		allowed.Store(true)
		pass(2 * taintsRefusal)
		equal(t, "once it is allowed", c.taints("edge-1"), "edge:NoSchedule gpu:NoSchedule")
		w.want("edge-1")
		pass(time.Second)
		equal(t, "not wanted any more", c.taints("edge-1"), "edge:NoSchedule")
	})
}

// After a kill anywhere, a Node gets its owner's taints once another replica is there, keeps
// others' taints, and loses all of the provider's.
func TestTaintsSurviveAKill(t *testing.T) {
	killedAnywhere(t, 6, func(t *testing.T, w *killable, c *fakeCluster) {
		w.want("edge-1", "a=1:NoSchedule", "b:NoExecute")
		w.armed.Store(true)
		c.joinTainted("edge-1", "ops:NoSchedule")
		pass(30 * time.Second)
		if w.n > 0 {
			w.restart()
		}
		w.want("edge-1", "a=2:NoSchedule")
		if w.n > 0 {
			w.own(factory)
		}
		pass(30 * time.Second)
		equal(t, "after the kill", c.taints("edge-1"), "a=2:NoSchedule ops:NoSchedule")
		w.want("edge-1")
		pass(30 * time.Second)
		equal(t, "taken back", c.taints("edge-1"), "ops:NoSchedule")
	})
}
