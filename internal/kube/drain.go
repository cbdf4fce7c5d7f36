package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DrainOptions says which pods may be evicted and how long that may take.
type DrainOptions struct {
	// Timeout bounds the whole drain; 0 leaves that to the context.
	Timeout time.Duration
	// GracePeriod is what each pod gets to end; 0 is the pod's own.
	GracePeriod time.Duration
	// DeleteEmptyDir also evicts pods whose emptyDir volumes are lost with them.
	DeleteEmptyDir bool
	// Force also evicts pods without a controller, which nothing creates again.
	Force bool
	// Progress is called from Drain's goroutine; nil is fine.
	Progress func(DrainEvent)
}

// DrainEvent is something that happened to a pod.
type DrainEvent struct {
	Kind DrainKind
	// Pod is namespace/name.
	Pod string
	// Reason says why a pod is blocked.
	Reason string
	// Remaining is how many pods still have to go.
	Remaining int
}

// DrainKind is what happened to a pod.
type DrainKind string

// A pod was asked to go, is gone, or may not go yet.
const (
	DrainEvicted DrainKind = "evicted"
	DrainGone    DrainKind = "gone"
	DrainBlocked DrainKind = "blocked"
)

// Blocked is a pod that does not go.
type Blocked struct {
	// Pod is namespace/name.
	Pod string
	// Reason says why; of a disruption budget, what the API server says, which names it.
	Reason string
}

// DrainError lists the pods that keep a Node from being drained.
type DrainError struct {
	Node    string
	Blocked []Blocked
	Remedy  string
	// Err is what ended the drain; nil when it did not begin.
	Err error
}

// Error names every pod with its reason.
func (e *DrainError) Error() string {
	var list []string
	for _, b := range e.Blocked {
		list = append(list, b.Pod+" ("+b.Reason+")")
	}
	text := fmt.Sprintf("cannot drain Node %s", e.Node)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + ": " + strings.Join(list, ", ") + "; " + e.Remedy
}

// Unwrap returns what ended the drain.
func (e *DrainError) Unwrap() error { return e.Err }

// Drain evicts the pods of the Node called name, as disruption budgets allow, and waits until they are gone. The Node should be cordoned before.
// Pods of DaemonSets and mirror pods stay. When a pod may not be evicted by the options, nothing is evicted. The error is a
// *DrainError when pods are in the way.
func (c *Client) Drain(ctx context.Context, name string, o DrainOptions) error {
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	pods, err := c.Pods(ctx, name)
	if err != nil {
		return fmt.Errorf("cannot drain Node %s: %w", name, err)
	}
	d := &drain{client: c, node: name, options: o, pods: make(map[types.UID]*leaving)}
	if err := d.take(pods); err != nil {
		return err
	}
	return d.run(ctx)
}

// drain is one Drain under way.
type drain struct {
	client  *Client
	node    string
	options DrainOptions
	pods    map[types.UID]*leaving
	order   []types.UID
}

// leaving is a pod that has to go.
type leaving struct {
	Pod
	asked  bool
	reason string
}

func (l *leaving) name() string { return l.Namespace + "/" + l.Name }

// take decides which pods have to go. That one may not is an error.
func (d *drain) take(pods []Pod) error {
	refused := &DrainError{Node: d.node}
	var remedies []string
	refuse := func(p Pod, reason, remedy string) {
		refused.Blocked = append(refused.Blocked, Blocked{Pod: p.Namespace + "/" + p.Name, Reason: reason})
		if len(remedies) == 0 || remedies[len(remedies)-1] != remedy {
			remedies = append(remedies, remedy)
		}
	}
	for _, p := range pods {
		switch {
		case stays(p):
			continue
		case over(p) || p.DeletionTimestamp != nil:
		case metav1.GetControllerOf(&p) == nil && !d.options.Force:
			refuse(p, "no controller would create it again", "delete these pods, or allow it by force")
			continue
		case hasEmptyDir(p) && !d.options.DeleteEmptyDir:
			refuse(p, "its emptyDir would be lost", "delete these pods, or allow their emptyDir volumes to be lost")
			continue
		}
		d.pods[p.UID] = &leaving{Pod: p, asked: p.DeletionTimestamp != nil}
		d.order = append(d.order, p.UID)
	}
	if len(refused.Blocked) == 0 {
		return nil
	}
	refused.Remedy = strings.Join(remedies, ", ")
	return refused
}

// run asks and looks in turns until no pod is left.
func (d *drain) run(ctx context.Context) error {
	for round := 0; len(d.pods) > 0; round++ {
		if err := d.ask(ctx); err != nil {
			return err
		}
		if err := d.look(ctx); err != nil && ctx.Err() == nil {
			if _, broken := errors.AsType[*Fault](err); !broken {
				return fmt.Errorf("cannot drain Node %s: %w", d.node, err)
			}
		}
		if len(d.pods) == 0 {
			return nil
		}
		if !d.client.retry.pause(ctx, round) {
			return d.stuck(ctx)
		}
	}
	return nil
}

// ask evicts what was not accepted yet.
func (d *drain) ask(ctx context.Context) error {
	for _, uid := range d.order {
		p, ok := d.pods[uid]
		if !ok || p.asked || ctx.Err() != nil {
			continue
		}
		answer, err := d.client.evict(ctx, p.Pod, d.options.GracePeriod)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("cannot drain Node %s: %w", d.node, err)
		}
		d.answered(p, answer)
	}
	return nil
}

func (d *drain) answered(p *leaving, answer eviction) {
	switch {
	case answer.gone:
		d.gone(p)
	case answer.accepted:
		p.asked, p.reason = true, ""
		d.tell(DrainEvicted, p)
	case answer.blocked != "" && answer.blocked != p.reason:
		p.reason = answer.blocked
		d.tell(DrainBlocked, p)
	}
}

// look takes off the list what is no longer on the Node.
func (d *drain) look(ctx context.Context) error {
	pods, err := d.client.Pods(ctx, d.node)
	if err != nil {
		return err
	}
	here := make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		here[p.UID] = true
	}
	for _, uid := range d.order {
		if p, ok := d.pods[uid]; ok && !here[uid] {
			d.gone(p)
		}
	}
	return nil
}

func (d *drain) gone(p *leaving) {
	delete(d.pods, p.UID)
	d.tell(DrainGone, p)
}

func (d *drain) tell(kind DrainKind, p *leaving) {
	if d.options.Progress != nil {
		d.options.Progress(DrainEvent{Kind: kind, Pod: p.name(), Reason: p.reason, Remaining: len(d.pods)})
	}
}

// stuck names what is left when time is up.
func (d *drain) stuck(ctx context.Context) error {
	e := &DrainError{Node: d.node, Err: context.Cause(ctx), Remedy: "wait for these pods to end, or delete them"}
	for _, uid := range d.order {
		p, ok := d.pods[uid]
		switch {
		case !ok:
			continue
		case p.asked:
			p.reason = "it has not ended yet"
		case p.reason == "":
			p.reason = "it was not asked yet"
		default:
			e.Remedy = "give these workloads more replicas elsewhere or relax their PodDisruptionBudget, then try again"
		}
		e.Blocked = append(e.Blocked, Blocked{Pod: p.name(), Reason: p.reason})
	}
	return e
}
