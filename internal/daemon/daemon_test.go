package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// bench is a daemon over a node that does what a test says, in simulated time.
type bench struct {
	t      *testing.T
	daemon *Daemon
	began  time.Time
	stop   context.CancelFunc
	ended  chan struct{}
	end    transition.Outcome // of Run

	reconcile func(context.Context) error
	check     func(context.Context) (Finding, error)
	repair    func(context.Context, []string) error
	leave     func(context.Context) error
	changed   bool
	received  chan struct{}
	deleted   chan struct{}
	hints     chan string

	mu        sync.Mutex
	jobs      []string
	at        []time.Duration
	messages  []string
	exhausted []string // as the last check was told
}

// newBench returns a daemon that is not started yet, whose node is healthy.
func newBench(t *testing.T) *bench {
	b := &bench{
		t: t, began: time.Now(), hints: make(chan string), ended: make(chan struct{}),
		reconcile: func(context.Context) error { return nil },
		check:     func(context.Context) (Finding, error) { return Finding{Summary: "healthy"}, nil },
		repair:    func(context.Context, []string) error { return nil },
		leave:     func(context.Context) error { return nil },
		received:  make(chan struct{}), deleted: make(chan struct{}),
	}
	b.daemon = &Daemon{
		Node: b, Hints: b.hints, Notify: b.notify, Watchdog: 3 * time.Minute,
		Received: b.received, Deleted: b.deleted,
		Budget: &Budget{Most: 3, Within: time.Hour, Save: func(map[string][]time.Time) {}},
		Told:   func(Job) {}, Log: slog.New(slog.DiscardHandler),
		Changed: func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			is := b.changed
			b.changed = false
			return is
		},
	}
	return b
}

// start runs the daemon until the test is over, or until stop.
func (b *bench) start() {
	ctx, stop := context.WithCancel(b.t.Context())
	b.stop = stop
	go func() {
		b.end = b.daemon.Run(ctx)
		close(b.ended)
	}()
	synctest.Wait()
}

// sleep lets time pass, and all that is due in it be done.
func (b *bench) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// set changes what the node does.
func (b *bench) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *bench) note(job string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs, b.at = append(b.jobs, job), append(b.at, time.Since(b.began))
}

func (b *bench) notify(message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages = append(b.messages, message)
}

func (b *bench) Reconcile(ctx context.Context) transition.Outcome {
	b.note("reconcile")
	return transition.Of(b.reconcile(ctx))
}

func (b *bench) Check(ctx context.Context, exhausted []string) (Finding, error) {
	b.note("check")
	b.set(func() { b.exhausted = exhausted })
	return b.check(ctx)
}

func (b *bench) Repair(ctx context.Context, things []string) transition.Outcome {
	b.note("repair " + strings.Join(things, " "))
	return transition.Of(b.repair(ctx, things))
}

func (b *bench) Leave(ctx context.Context) transition.Outcome {
	b.note("leave")
	return transition.Of(b.leave(ctx))
}

// busy is the outcome of a job while another command works.
var busy = &transition.Outcome{Kind: transition.Busy, Err: errors.New("bootstrap is at work")}

// times are when jobs of a kind were begun, since the last take.
func (b *bench) times(kind string) []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var at []time.Duration
	for i, job := range b.jobs {
		if strings.HasPrefix(job, kind) {
			at = append(at, b.at[i])
		}
	}
	return at
}

// take returns the jobs that were begun since the last take.
func (b *bench) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	jobs := b.jobs
	b.jobs, b.at = nil, nil
	return jobs
}

// told returns what systemd was told that begins like prefix.
func (b *bench) told(prefix string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var told []string
	for _, m := range b.messages {
		if text, ok := strings.CutPrefix(m, prefix); ok {
			told = append(told, text)
		}
	}
	return told
}

// inBubble runs a test in simulated time and fails unless its daemon ends on request.
func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		test(t, b)
		b.stop()
		<-b.ended
	})
}

// within fails unless each duration is the wanted one, spread by half.
func within(t *testing.T, what string, got, want []time.Duration) {
	t.Helper()
	if len(got) < len(want) {
		t.Fatalf("%s: %v, want about %v", what, got, want)
	}
	for i, w := range want {
		if got[i] < w/2 || got[i] > w*3/2 {
			t.Errorf("%s: pause %d is %s, want about %s", what, i, got[i], w)
		}
	}
}

// pauses are the times between events.
func pauses(at []time.Duration) []time.Duration {
	var list []time.Duration
	for i := 1; i < len(at); i++ {
		list = append(list, at[i]-at[i-1])
	}
	return list
}

// READY is said before anything is done, and a healthy node is checked about once a minute.
func TestHealthy(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.reconcile = func(ctx context.Context) error {
			if diff := cmp.Diff([]string{""}, b.told("READY=1")); diff != "" {
				t.Errorf("READY before the first reconciliation: %s", diff)
			}
			return nil
		}
		b.start()
		if diff := cmp.Diff([]string{"reconcile", "check"}, b.take()); diff != "" {
			t.Errorf("at the start: %s", diff)
		}
		b.sleep(time.Hour)
		if n := len(b.times("check")); n < 50 || n > 75 || len(b.take()) != n {
			t.Errorf("%d checks in an hour", n)
		}
		if diff := cmp.Diff([]string{"healthy"}, b.told("STATUS=")); diff != "" {
			t.Error(diff)
		}
		b.stop()
		if <-b.ended; b.end.Kind != transition.Done || len(b.told("STOPPING=1")) != 1 {
			t.Errorf("ended with %v, told %v", b.end, b.messages)
		}
	})
}

// A reconciliation that fails is tried again after pauses that double up to five minutes. A new
// configuration begins with the shortest pause, and success too.
func TestBackOff(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		want := []time.Duration{}
		for _, s := range []int{5, 10, 20, 40, 80, 160, 300, 300, 300} {
			want = append(want, time.Duration(s)*time.Second)
		}
		down := errors.New("the API server is \x1b[5mdown\u202e\nand more")
		b.reconcile = func(context.Context) error { return down }
		b.start()
		b.sleep(time.Hour)
		within(t, "retry", pauses(b.times("reconcile")), want)
		if n := len(b.times("check")); n < 50 {
			t.Errorf("%d checks in an hour of failures", n)
		}
		status := b.told("STATUS=")
		const plain = `healthy; trying again: the API server is [5mdown\u202e`
		last := status[len(status)-1]
		if last != plain {
			t.Errorf("status is %q", last)
		}
		b.set(func() { b.changed = true })
		b.sleep(pollEvery)
		b.take()
		b.sleep(2 * time.Minute)
		if n := len(b.times("reconcile")); n < 3 {
			t.Errorf("%d retries in the two minutes after a new configuration", n)
		}
		b.set(func() { b.reconcile = func(context.Context) error { return nil } })
		b.sleep(10 * time.Minute)
		status = b.told("STATUS=")
		if last := status[len(status)-1]; last != "healthy" {
			t.Errorf("status is %q when all is well again", last)
		}
	})
}

// What cannot work is not tried again until the configuration changes; the node is checked on.
func TestFinal(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		cause := errors.New("kubelet does not start")
		b.reconcile = func(context.Context) error {
			return &transition.Outcome{Kind: transition.Refused, Err: cause}
		}
		b.start()
		b.sleep(time.Hour)
		if n, checks := len(b.times("reconcile")), len(b.times("check")); n != 1 || checks < 50 {
			t.Errorf("%d reconciliations and %d checks in an hour", n, checks)
		}
		last := b.told("STATUS=")
		want := "configuration rejected: kubelet does not start"
		if !strings.Contains(last[len(last)-1], want) {
			t.Errorf("status is %q", last)
		}
		b.set(func() { b.changed = true })
		b.sleep(time.Minute)
		if n := len(b.times("reconcile")); n != 2 {
			t.Errorf("%d reconciliations after a new configuration", n)
		}
	})
}

// While another verb has the lock, the daemon asks again every few seconds; the node is checked on.
func TestBusy(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.reconcile = func(context.Context) error { return busy }
		b.start()
		b.sleep(time.Minute)
		if n := len(b.times("reconcile")); n < 10 || n > 13 {
			t.Errorf("%d reconciliations in a minute", n)
		}
		b.set(func() { b.reconcile = func(context.Context) error { return nil } })
		b.sleep(time.Minute)
		b.take()
		b.sleep(time.Hour)
		if n := len(b.times("reconcile")); n != 0 {
			t.Errorf("%d reconciliations of a node that is as configured", n)
		}
	})
}

// A changed configuration interrupts the reconciliation of the former one, and is taken up at once.
func TestInterrupted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		interrupted := false
		b.reconcile = func(ctx context.Context) error {
			if interrupted {
				return nil
			}
			<-ctx.Done()
			interrupted = true
			return ctx.Err()
		}
		b.start()
		b.sleep(time.Minute)
		b.set(func() { b.changed = true })
		b.sleep(pollEvery)
		if diff := cmp.Diff([]string{"reconcile", "reconcile", "check"}, b.take()); diff != "" {
			t.Error(diff)
		}
		if status := b.told("STATUS="); !slices.Equal(status, []string{"healthy"}) {
			t.Errorf("status was %v", status)
		}
	})
}

// A node that proves to be healthy is let finish when its configuration changes, however often that
// comes; then the newest one is taken up.
func TestProofIsNotInterrupted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var proved, cut atomic.Int64
		b.reconcile = func(ctx context.Context) error {
			done := b.daemon.Proving()
			err := rest(ctx, 40*time.Second)
			done()
			if err == nil {
				err = rest(ctx, 10*time.Second)
			}
			if err != nil {
				cut.Add(1)
				return err
			}
			proved.Add(1)
			return nil
		}
		b.start()
		for range 60 {
			b.set(func() { b.changed = true })
			b.sleep(10 * time.Second)
		}
		if p, c := proved.Load(), cut.Load(); p < 10 || c > 0 {
			t.Errorf("in ten minutes %d were proved, and %d cut short", p, c)
		}
		b.sleep(2 * time.Minute)
		if n, p := len(b.times("reconcile")), int(proved.Load()); n != p || n > 14 {
			t.Errorf("%d reconciliations, %d proved", n, p)
		}
	})
}

// The wait for a proof has a bound, however many changes come; a deletion does not wait.
func TestProofIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var took []time.Duration
		b.reconcile = func(ctx context.Context) error {
			defer b.daemon.Proving()()
			began := time.Now()
			<-ctx.Done()
			took = append(took, time.Since(began))
			return ctx.Err()
		}
		b.start()
		for range 31 { // a change comes in the first two proofs
			b.set(func() { b.changed = true })
			b.sleep(10 * time.Second)
		}
		b.sleep(time.Hour - time.Since(b.began))
		b.set(func() { b.changed = true }) // the third one has taken too long already
		b.sleep(pollEvery)
		b.sleep(time.Minute)
		b.deleted <- struct{}{}
		synctest.Wait()
		want := []time.Duration{proofLimit, proofLimit, time.Hour - 2*proofLimit, time.Minute}
		for i, d := range want {
			if len(took) != len(want) || (took[i]-d).Abs() > pollEvery {
				t.Fatalf("interrupted after %v, want about %v", took, want)
			}
		}
	})
}

// rest returns after a time, or with the error of a context that ends before.
func rest(ctx context.Context, d time.Duration) error {
	wait.Sleep(ctx, d)
	return ctx.Err()
}

// A machine that an operator has given back ends the daemon, no matter which job notices first.
func TestLeft(t *testing.T) {
	for name, leave := range map[string]func(*bench){
		"reconcile": func(b *bench) {
			b.reconcile = func(context.Context) error { return &transition.Outcome{Kind: transition.Left} }
		},
		"check": func(b *bench) {
			b.check = func(context.Context) (Finding, error) { return Finding{Left: true}, nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				leave(b)
				b.start()
				if <-b.ended; b.end.Kind != transition.Left {
					t.Errorf("ended with %v", b.end)
				}
			})
		})
	}
}

// A worker that makes no progress is not fed; one that does is, however long it takes.
func TestWatchdog(t *testing.T) {
	for name, test := range map[string]struct {
		work func(*bench, context.Context)
		fed  bool
	}{
		"stuck": {func(_ *bench, ctx context.Context) { <-ctx.Done() }, false},
		"slow": {func(b *bench, ctx context.Context) {
			for ctx.Err() == nil {
				b.daemon.Beat()
				time.Sleep(30 * time.Second)
			}
		}, true},
		"idle": {func(*bench, context.Context) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.reconcile = func(ctx context.Context) error { test.work(b, ctx); return nil }
				b.start()
				b.sleep(5 * time.Minute)
				before := len(b.told("WATCHDOG=1"))
				b.sleep(30 * time.Minute)
				fed := len(b.told("WATCHDOG=1")) - before
				if test.fed && fed != 40 || !test.fed && fed != 0 {
					t.Errorf("fed %d times in 30 minutes", fed)
				}
			})
		})
	}
}

// systemd is a watchdog: it holds whether the time between two feeds was ever too long.
type systemd struct {
	last   time.Time
	within time.Duration
	killed bool
}

func (s *systemd) notify(message string) {
	if message != "WATCHDOG=1" {
		return
	}
	s.killed = s.killed || time.Since(s.last) >= s.within
	s.last = time.Now()
}

// A worker that is silent for longer than it may be, and then works again, survives, whenever its
// silence begins: one feed that is refused kills nothing.
func TestSilenceIsSurvived(t *testing.T) {
	for _, silence := range []time.Duration{160 * time.Second, 235 * time.Second} {
		for offset := time.Duration(0); offset < 90*time.Second; offset += 7 * time.Second {
			inBubble(t, func(t *testing.T, b *bench) {
				dog := &systemd{last: time.Now(), within: b.daemon.Watchdog}
				b.daemon.Notify = dog.notify
				b.reconcile = func(context.Context) error {
					for _, d := range []time.Duration{offset, silence, time.Second} {
						time.Sleep(d)
						b.daemon.Beat()
					}
					return nil
				}
				b.start()
				b.sleep(20 * time.Minute)
				if dog.killed || time.Since(dog.last) >= dog.within {
					t.Errorf("killed for a silence of %s after %s", silence, offset)
				}
			})
		}
	}
}

// A clock that is set neither starves nor shields a worker: the last beat has a monotonic reading,
// which time.Since prefers. A bubble's time has none, so this is outside of one.
func TestBeatIsMonotonic(t *testing.T) {
	var d Daemon
	d.Beat()
	if beat := d.progress.Load().String(); !strings.Contains(beat, " m=") {
		t.Errorf("a beat at %s, which has no monotonic reading", beat)
	}
}

// Without a watchdog nothing is fed.
func TestNoWatchdog(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.daemon.Watchdog = 0
		b.start()
		b.sleep(time.Hour)
		if fed := b.told("WATCHDOG=1"); len(fed) > 0 {
			t.Errorf("fed %d times", len(fed))
		}
	})
}

// A worker that ignores the request to end does not keep the daemon from ending; neither does a
// check take longer than its time.
func TestDeadlines(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		bounded := false
		b.check = func(ctx context.Context) (Finding, error) {
			<-ctx.Done()
			b.set(func() { bounded = true })
			return Finding{}, ctx.Err()
		}
		b.start()
		b.sleep(checkLimit + time.Second)
		if !bounded {
			t.Error("the check has no deadline")
		}
		release := make(chan struct{})
		b.set(func() {
			b.check = func(context.Context) (Finding, error) { <-release; return Finding{}, nil }
		})
		b.sleep(2 * checkEvery)
		began := time.Now()
		b.stop()
		if <-b.ended; b.end.Kind != transition.Done || time.Since(began) > time.Minute {
			t.Errorf("ended after %s with %v", time.Since(began), b.end)
		}
		close(release)
	})
}

// A job that is stopped with the daemon counts for nothing: no retry, no message.
func TestStoppedAtWork(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.reconcile = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		b.start()
		b.stop()
		if <-b.ended; b.end.Kind != transition.Done || len(b.told("STATUS=")) > 0 {
			t.Errorf("ended with %v, told %v", b.end, b.messages)
		}
	})
}

// A check that fails is made again a minute later.
func TestCheckFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.check = func(context.Context) (Finding, error) {
			return Finding{}, errors.New("no such file")
		}
		b.start()
		b.sleep(10 * time.Minute)
		if n := len(b.times("check")); n < 8 || n > 13 {
			t.Errorf("%d checks in ten minutes", n)
		}
	})
}

// What a check asks for is reconciled with growing pauses, even if the reconciliation itself
// succeeds: a name that does not resolve must not have a fleet ask Azure every few seconds.
func TestCheckAsks(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		untrusted := true
		b.check = func(context.Context) (Finding, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return Finding{Reconcile: untrusted}, nil
		}
		b.start()
		b.sleep(2 * time.Hour)
		if n := len(b.times("reconcile")); n < 18 || n > 42 {
			t.Errorf("%d reconciliations in two hours", n)
		}
		b.set(func() { untrusted = false })
		b.sleep(10 * time.Minute)
		b.take()
		b.sleep(time.Hour)
		if n := len(b.times("reconcile")); n != 0 {
			t.Errorf("%d reconciliations without a request", n)
		}
	})
}

// Told is called when a job of the worker begins and when it ends, with its outcome.
func TestTold(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var told []Job
		b.daemon.Told = func(j Job) { told = append(told, j) }
		wrong := errors.New("wrong")
		b.check = func(context.Context) (Finding, error) { return Finding{}, wrong }
		b.start()
		b.sleep(time.Second)
		want := []Job{
			{Kind: "reconcile"}, {Kind: "reconcile", Ended: true},
			{Kind: "check"}, {Kind: "check", Ended: true, Err: wrong},
		}
		same := cmp.Comparer(func(a, b error) bool { return a == b })
		if diff := cmp.Diff(want, told, same); diff != "" {
			t.Error(diff)
		}
	})
}

// A change that waits is tried as often as its error says. It is logged and checked for once, and
// again when its error is another one.
func TestLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var log strings.Builder
		b.daemon.Log = slog.New(slog.NewTextHandler(&log, nil))
		why, at := "a budget", time.Now().Add(95*time.Second)
		b.reconcile = func(context.Context) error {
			if !time.Now().Before(at) {
				return nil
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			return &transition.Outcome{Kind: transition.Waits, Err: errors.New(why), RetryAt: at,
				Every: 30 * time.Second}
		}
		b.start()
		b.sleep(31 * time.Second)
		b.set(func() { why = "another budget" })
		b.sleep(2 * time.Minute)
		b.stop()
		<-b.ended
		const second = time.Second
		want := []time.Duration{0, 30 * second, 60 * second, 90 * second, 95 * second}
		if diff := cmp.Diff(want, b.times("reconcile")); diff != "" {
			t.Errorf("tried (-want +got):\n%s", diff)
		}
		if n := strings.Count(log.String(), "a change waits"); n != 2 {
			t.Errorf("logged %d times:\n%s", n, log.String())
		}
	})
}
