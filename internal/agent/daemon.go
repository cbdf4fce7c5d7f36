package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// The daemon's intervals. Each is spread by the given part of itself, so that a thousand machines that came up together do not
// ask together.
const (
	checkEvery = time.Minute
	spread     = 0.2
	retryFirst = 5 * time.Second
	retryMost  = 5 * time.Minute
	// repairBudget is how many repairs in a row may fail to last before the daemon only reports.
	repairBudget = 3
)

// ErrLeft tells that the machine is no node any more: somebody has run unbootstrap.
var ErrLeft = errors.New("this machine has been unbootstrapped")

// Daemon makes the machine the node that c describes and then keeps watch over it: its health and its drift, every minute. It
// returns when ctx ends, with ErrLeft when the machine stops being a node, or with the error of a first bootstrap that trying
// again would not mend.
func (a *Agent) Daemon(ctx context.Context, c config.Config) error {
	stop := a.watchdog(ctx)
	defer stop()
	if err := a.bootstrapUntilDone(ctx, c); err != nil || ctx.Err() != nil {
		return err
	}
	a.notify(daemon.SdNotifyReady)
	w := &watch{agent: a, policy: c.Agent.DriftPolicy}
	for {
		if err := w.check(ctx); err != nil {
			return err
		}
		debug.FreeOSMemory() // a minute of rest follows; the machine has better use for the memory
		if !sleep(ctx, jitter(checkEvery)) {
			a.notify(daemon.SdNotifyStopping)
			return nil
		}
	}
}

// bootstrapUntilDone tries again, later each time, as long as what failed may mend itself.
func (a *Agent) bootstrapUntilDone(ctx context.Context, c config.Config) error {
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		a.notify("STATUS=joining " + c.Agent.NodeName)
		_, err := a.Bootstrap(ctx, c)
		if err == nil || ctx.Err() != nil {
			return nil // told to stop, it has stopped between two changes; the next start finishes
		}
		a.Log.Error("bootstrap failed, trying again", "error", err, "in", pause)
		a.warn("bootstrap failed, trying again in %s: %v", pause, err)
		a.notify("STATUS=bootstrap failed, trying again: " + err.Error())
		if !sleep(ctx, jitter(pause)) {
			return nil
		}
	}
}

// watch is the daemon's memory between two checks.
type watch struct {
	agent   *Agent
	policy  string
	last    string
	repairs int
}

// check looks at the node once, reports what changed since the last look, and repairs if the policy says so. That another verb
// is at work, or that the look failed, is no reason to stop.
func (w *watch) check(ctx context.Context) error {
	a := w.agent
	s, err := a.open("agent")
	if _, busy := errors.AsType[*LockedError](err); busy {
		return nil
	}
	if err != nil {
		a.Log.Warn("cannot check the node", "error", err)
		return nil
	}
	defer s.close()
	st, err := s.status(ctx)
	switch {
	case errors.Is(err, errNoNode):
		return ErrLeft
	case err != nil:
		a.Log.Warn("cannot check the node", "error", err)
		return nil
	}
	if w.policy == config.DriftOff {
		st.Drift = nil
	}
	w.report(st)
	if err := s.keep(ctx, st); err != nil {
		a.Log.Warn("cannot write the status", "error", err)
	}
	if len(st.Drift) == 0 {
		w.repairs = 0
		return nil
	}
	w.repair(ctx, s)
	return nil
}

// report logs a status that differs from the last one.
func (w *watch) report(st Status) {
	a := w.agent
	text := fmt.Sprint(st.Ready, st.Reason, st.Units, st.Drift)
	if text == w.last {
		return
	}
	w.last = text
	for _, d := range st.Drift {
		a.Log.Warn("drift", "what", d.Key, "step", d.Step, "expected", d.Expected, "found", d.Found)
	}
	if st.Ready == "True" {
		a.Log.Info("the Node is Ready", "node", st.NodeName)
	} else {
		a.Log.Warn("the Node is not Ready", "node", st.NodeName, "reason", st.Reason)
	}
	a.notify(fmt.Sprintf("STATUS=Node %s ready=%q, %s", st.NodeName, st.Ready, plural(len(st.Drift), "drift")))
}

// repair puts drift right, unless it comes back every time: then somebody else wants it so.
func (w *watch) repair(ctx context.Context, s *session) {
	a := w.agent
	if w.policy != config.DriftRepair || w.repairs > repairBudget {
		return
	}
	w.repairs++
	if w.repairs > repairBudget {
		a.Log.Error("drift keeps coming back and is no longer repaired; find out who changes it", "after", repairBudget)
		return
	}
	plan, g, err := s.drift(ctx)
	if err == nil {
		err = s.repair(ctx, g, plan)
	}
	if err != nil {
		a.Log.Error("cannot repair drift", "error", err)
		return
	}
	w.last = ""
	a.Log.Info("drift repaired", "changes", len(plan))
}

// keep writes the status file.
func (s *session) keep(ctx context.Context, st Status) error {
	body, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return s.Machine.Set(ctx, state.Change{To: state.NewFile(StatusFile, 0o600, string(body)+"\n")}, nil)
}

// watchdog tells systemd that the daemon lives, twice in each interval that the unit asks for.
func (a *Agent) watchdog(ctx context.Context) (stop func()) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, every/2) {
			a.notify(daemon.SdNotifyWatchdog)
		}
	}()
	return func() { cancel(); <-done }
}

// notify sends one message to systemd, if it runs us as a service that listens.
func (a *Agent) notify(message string) {
	if _, err := daemon.SdNotify(false, message); err != nil {
		a.Log.Debug("cannot notify systemd", "error", err)
	}
}

func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - spread + 2*spread*rand.Float64()))
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
