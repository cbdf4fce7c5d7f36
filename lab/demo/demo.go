// Package demo joins one machine of the lab, then shows and measures the life of a node on another,
// from its configuration URL to the deletion of its flexNodeConfig. `flexlab demo` runs it.
package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
)

// Names of the machines, which are those of their Nodes and flexNodeConfigs.
const (
	// First joins with the newest versions and stays. The components that it needs are built first.
	First = "demo-1"
	// Second goes through the whole life, from the oldest versions on.
	Second = "demo-2"
)

// Demo is a demonstration in a lab that runs with its resource provider.
type Demo struct {
	Lab *lab.Lab
	// Agent is the agent to install on the machines.
	Agent string
	// Older waits until the provider offers more versions: Oldest, on the next call Former. Life needs
	// it.
	Older func(context.Context) error
}

// Numbers holds the measurements: seconds, and the number of replaced containers.
type Numbers struct {
	// Join is the time from the command to a Ready Node. Label is from the response to a PUT until the
	// Node has the label. KubeletDown is kubelet's longest downtime in changes that do not affect
	// pods, and Restarted counts the containers that they replaced or restarted. Drain is from the PUT
	// of another minor version until the pods are back. Rollback is from the health gate's deadline
	// until the node is healthy again.
	Join, Label, KubeletDown, Drain, Rollback float64
	Restarted                                 int
	// Clean reports whether the machine is unchanged at the end.
	Clean bool
	// lived reports whether the whole life was shown, not only the join.
	lived bool
}

// String returns the last line of a demo.
func (n Numbers) String() string {
	const checked = "; services ok; dns ok"
	if !n.lived {
		return fmt.Sprintf("demo join_s=%.1f", n.Join) + checked
	}
	return fmt.Sprintf("demo join_s=%.1f label_s=%.1f kubelet_down_s=%.1f containers_restarted=%d "+
		"drain_upgrade_s=%.1f rollback_s=%.1f clean=%t", n.Join, n.Label, n.KubeletDown, n.Restarted,
		n.Drain, n.Rollback, n.Clean) + checked
}

// Begin joins First with the newest versions.
func (d Demo) Begin(ctx context.Context) (Numbers, error) {
	s := &story{Demo: d, name: First, begins: lab.Newest}
	err := s.tell(ctx, s.joined())
	return s.Numbers, err
}

// Life joins Second with the oldest versions and shows its life.
func (d Demo) Life(ctx context.Context) (Numbers, error) {
	if err := d.Older(ctx); err != nil {
		return Numbers{}, err
	}
	s := &story{Demo: d, name: Second, begins: lab.Oldest, Numbers: Numbers{lived: true}}
	err := s.tell(ctx, append(s.joined(), []step{
		{"a label, by long poll", s.label},
		{"another version of containerd and a kubelet setting, while pods run", s.containerd},
		{"a new minor version of Kubernetes, with a drain", s.upgrade},
		{"a new patch version of Kubernetes, while pods run", s.patch},
		{"a revision that fails, and a rollback without provider and mirror", s.rollback},
		{"the flexNodeConfig is deleted", s.leave},
	}...))
	return s.Numbers, err
}

// joined returns the steps until users can use the node.
func (s *story) joined() []step {
	return []step{
		{"a new machine", s.machine},
		{"joins by one command, with a configuration URL", s.join},
		{"a pod, Services and DNS", s.check},
	}
}

// tell runs the steps of a story.
func (s *story) tell(ctx context.Context, steps []step) (err error) {
	if s.api, err = s.Lab.AdminClient(); err != nil {
		return err
	}
	defer s.api.CloseIdleConnections()
	defer func() {
		if s.kubelet != nil {
			s.kubelet.stop()
		}
	}()
	for i, step := range steps {
		s.Lab.Say("%s %d/%d %s", s.name, i+1, len(steps), step.name)
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

type step struct {
	name string
	run  func(context.Context) error
}

// story is a running demo.
type story struct {
	Demo
	Numbers
	// name is the machine's name; begins are the versions with which it joins.
	name   string
	begins lab.Versions
	m      lab.Machine
	api    *http.Client
	// wants holds the properties that the owner has set.
	wants properties
	// before is the machine's first snapshot.
	before []string
	// kubelet measures kubelet's downtime.
	kubelet *watch
}

// machine adds the machine with only the agent installed, after removing the remains of an earlier
// demo.
func (s *story) machine(ctx context.Context) error {
	l := s.Lab
	if _, err := l.Machine(s.name); err == nil {
		if err := l.RemoveMachine(ctx, s.name); err != nil {
			return err
		}
	}
	if _, err := s.arm(ctx, http.MethodDelete, "", nil); err != nil {
		return err
	}
	if _, err := l.Kubectl(ctx, "", "delete", "node", s.name, "--ignore-not-found"); err != nil {
		return err
	}
	var err error
	if s.m, err = l.AddMachine(ctx, s.name); err != nil {
		return err
	}
	if err := l.Install(s.m, s.Agent); err != nil {
		return err
	}
	if err := l.Write(s.m, dropInPath, 0o644, []byte(dropIn)); err != nil {
		return err
	}
	if _, err := l.Output(ctx, s.m, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	s.before, err = l.Snapshot(ctx, s.m)
	return err
}

// until waits for a condition.
func until(
	ctx context.Context, most time.Duration, what string, done func(context.Context) (bool, error),
) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		ok, last := done(ctx)
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("cannot wait for %s: %w", what, ctx.Err()), last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// since returns the seconds since t.
func since(t time.Time) float64 { return time.Since(t).Seconds() }
