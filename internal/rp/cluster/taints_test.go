package cluster

import (
	"context"
	"net/http"
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
	n := kubeNode(name, corev1.ConditionTrue)
	n.Labels[managedLabel] = "false"
	n.Spec.Taints = taintsIn(strings.Join(taints, ","))
	must(c.CoreV1().Nodes().Create(context.Background(), n, metav1.CreateOptions{}))
	pass(2 * readinessPause)
}

// taints returns the taints of a Node, sorted.
func (c *fakeCluster) taints(name string) string {
	n := must(c.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{}))
	var list []string
	for _, t := range n.Spec.Taints {
		list = append(list, writeTaint(t))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// taintAs changes a Node's taints like another client.
func (c *fakeCluster) taintAs(name string, change func([]corev1.Taint) []corev1.Taint) {
	nodes := c.CoreV1().Nodes()
	n := must(nodes.Get(context.Background(), name, metav1.GetOptions{}))
	n.Spec.Taints = change(n.Spec.Taints)
	must(nodes.Update(context.Background(), n, metav1.UpdateOptions{}))
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

// A Node gets the taints that its owner wants, and their changes, and keeps all others.
func TestTaints(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		check := func(when, want string) {
			t.Helper()
			equal(t, when, c.taints("edge-1"), want)
		}
		count := patches(c)
		w.want("edge-1", "edge=true:NoSchedule")
		c.joinTainted("edge-1", "edge=true:NoSchedule")
		check("as it was registered", "edge=true:NoSchedule")
		equal(t, "patches of what is as it is wanted", count(), 0)
		c.taintAs("edge-1", func(has []corev1.Taint) []corev1.Taint {
			now := metav1.Now()
			down := readTaint(nodeUnreachable)
			down.TimeAdded = &now
			return append(has, readTaint("ops=maintenance:NoSchedule"), down)
		})
		w.want("edge-1", "edge=true:NoSchedule", "gpu:NoExecute")
		check("one more", "edge=true:NoSchedule gpu:NoExecute "+nodeUnreachable+
			" ops=maintenance:NoSchedule")
		w.want("edge-1", "edge=false:NoSchedule")
		check("another value", "edge=false:NoSchedule "+nodeUnreachable+" ops=maintenance:NoSchedule")
		w.want("edge-1")
		check("none", nodeUnreachable+" ops=maintenance:NoSchedule")
		n := must(c.CoreV1().Nodes().Get(t.Context(), "edge-1", metav1.GetOptions{}))
		if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.TimeAdded != nil
		}) {
			t.Error("the time of another's taint is lost")
		}
		before := count()
		pass(time.Hour)
		equal(t, "patches of what is as it is wanted", count(), before)
		if status := must(w.store.Status.Get(t.Context(), factory+"/edge-1")).Value; status.Ready ==
			nil || len(status.Taints) > 0 {
			t.Errorf("%+v", status)
		}
	})
}

// Taints that a webhook removes each time are set again, less and less often; a later change by the
// owner is not delayed.
func TestTaintsThatAreStripped(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		count := patches(c)
		c.PrependReactor("patch", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
			go func() {
				time.Sleep(time.Millisecond)
				nodes := c.CoreV1().Nodes()
				n := must(nodes.Get(context.Background(), "edge-1", metav1.GetOptions{}))
				n.Spec.Taints = nil
				must(nodes.Update(context.Background(), n, metav1.UpdateOptions{}))
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

// A taint that another client removes or changes is restored; one that was never the provider's is
// kept, even if an owner wants it for a while with another effect.
func TestTaintsOfOthers(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.want("edge-1", "edge=true:NoSchedule", "node.kubernetes.io/unreachable:NoExecute")
		c.joinTainted("edge-1", "edge=true:NoSchedule", "edge=true:NoExecute", nodeUnreachable)
		c.taintAs("edge-1", func([]corev1.Taint) []corev1.Taint { return nil })
		equal(t, "taken away", c.taints("edge-1"), "edge=true:NoSchedule")
		c.taintAs("edge-1", func([]corev1.Taint) []corev1.Taint {
			return []corev1.Taint{readTaint("edge=true:NoExecute"), readTaint(nodeUnreachable)}
		})
		w.want("edge-1")
		equal(t, "others' taints", c.taints("edge-1"), "edge=true:NoExecute "+nodeUnreachable)
	})
}

// A taint that another client has set on a Node stays, whatever the owner wants meanwhile: the same
// taint, or one with another value.
func TestTaintsThatOthersHaveToo(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		count := patches(c)
		w.want("edge-1", "own:NoSchedule")
		c.joinTainted("edge-1", "own:NoSchedule")
		c.taintAs("edge-1", func(has []corev1.Taint) []corev1.Taint {
			return append(has, readTaint("ops:NoSchedule"), readTaint("site=a:NoSchedule"))
		})
		check := func(when, want string) {
			t.Helper()
			equal(t, when, c.taints("edge-1"), want)
		}
		w.want("edge-1", "ops:NoSchedule", "own:NoSchedule", "site=b:NoSchedule")
		check("wanted too", "ops:NoSchedule own:NoSchedule site=a:NoSchedule")
		equal(t, "patches", count(), 0)
		w.want("edge-1", "new:NoSchedule")
		check("no longer wanted", "new:NoSchedule ops:NoSchedule site=a:NoSchedule")
		w.want("edge-1", "site=b:NoSchedule")
		c.taintAs("edge-1", func([]corev1.Taint) []corev1.Taint { return nil })
		check("once the other is gone", "site=b:NoSchedule")
		w.want("edge-1")
		check("none", "")
	})
}

// A taint that another client sets just before the provider does is not the provider's.
func TestTaintsOfTheSameMoment(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		c.joinTainted("edge-1")
		w.put(factoryID, "edge-1", flexnode.Desired{})
		pass(2 * readinessPause)
		raced := false
		c.PrependReactor("patch", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
			if raced {
				return false, nil, nil
			}
			raced = true
			n := kubeNode("edge-1", corev1.ConditionTrue)
			n.Labels[managedLabel] = "false"
			n.Spec.Taints = []corev1.Taint{readTaint("ops:NoSchedule")}
			nodes := corev1.SchemeGroupVersion.WithResource("nodes")
			if err := c.Tracker().Update(nodes, n, ""); err != nil {
				t.Error(err)
			}
			resource := schema.GroupResource{Resource: "nodes"}
			return true, nil, apierrors.NewConflict(resource, "edge-1", nil)
		})
		w.want("edge-1", "ops:NoSchedule", "own:NoSchedule")
		pass(time.Second)
		if got := c.taints("edge-1"); !raced || got != "ops:NoSchedule own:NoSchedule" {
			t.Errorf("%v: %s", raced, got)
		}
		w.want("edge-1")
		equal(t, "taken away", c.taints("edge-1"), "ops:NoSchedule")
	})
}

// Only the Nodes of flex nodes are changed, and a concurrent change by another client is not
// overwritten.
func TestTaintsOfTheRightNode(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.want("edge-1", "edge:NoSchedule")
		c.join("edge-1", corev1.ConditionTrue) // it has not the label of a flex node
		equal(t, "another's Node", c.taints("edge-1"), "")
		conflicts, sent := int64(2), atomic.Int64{}
		c.PrependReactor("patch", "nodes", func(a ktesting.Action) (bool, runtime.Object, error) {
			text := string(a.(ktesting.PatchAction).GetPatch())
			if !strings.Contains(text, `"resourceVersion"`) || !strings.Contains(text, `"uid"`) {
				t.Errorf("the patch depends on nothing: %s", text)
			}
			if sent.Add(1) > conflicts {
				return false, nil, nil
			}
			resource := schema.GroupResource{Resource: "nodes"}
			return true, nil, apierrors.NewConflict(resource, "edge-2", nil)
		})
		w.want("edge-2", "edge:NoSchedule")
		c.joinTainted("edge-2")
		pass(time.Second)
		if got := c.taints("edge-2"); got != "edge:NoSchedule" || sent.Load() != conflicts+1 {
			t.Errorf("%s after %d patches", got, sent.Load())
		}
	})
}

// A cluster that forbids it gets few attempts.
func TestTaintsAreForbidden(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		var refused atomic.Int64
		c.PrependReactor("patch", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
			refused.Add(1)
			e := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "x", nil)
			e.ErrStatus.Code = http.StatusForbidden
			return true, nil, e
		})
		w.want("edge-1", "edge:NoSchedule")
		c.joinTainted("edge-1")
		for range 60 {
			c.taintAs("edge-1", func(has []corev1.Taint) []corev1.Taint {
				return append(has, readTaint("more:NoSchedule"))[:len(has)%2]
			})
		}
		if n := refused.Load(); n == 0 || n > 4 {
			t.Errorf("refused %d times in a minute", n)
		}
	})
}

// A refused taint was not set: a client that sets it by hand meanwhile keeps it.
func TestTaintsThatWereRefused(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		var allowed atomic.Bool
		c.PrependReactor("patch", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
			resource := schema.GroupResource{Resource: "nodes"}
			return !allowed.Load(), nil, apierrors.NewForbidden(resource, "x", nil)
		})
		c.joinTainted("edge-1")
		w.want("edge-1", "edge:NoSchedule", "gpu:NoSchedule")
		pass(time.Second)
		c.taintAs("edge-1", func(has []corev1.Taint) []corev1.Taint {
			return append(has, readTaint("edge:NoSchedule"))
		})
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
