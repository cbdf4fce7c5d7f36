package stories

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errKilled = errors.New("killed")

// fuse kills a process at its n-th touch of the machine or the cluster, like SIGKILL: nothing after
// that is executed, no error is handled and nothing is cleaned up.
type fuse struct {
	mu sync.Mutex
	// left is the number of touches that are left; negative never kills. when kills at the first
	// touch for which it returns true.
	left    int
	when    func() bool
	touches int
	current *process
	// over is closed at the end of the test, when dead processes may go.
	over chan struct{}
}

// process is one run of the agent.
type process struct {
	dead   bool
	killed chan struct{}
	// changing counts, for each goroutine, the touches whose change has not returned: one may be
	// part of another. ended is signalled when one has.
	changing map[string]int
	ended    *sync.Cond
}

// touch is called before each change, and done when the change has returned. It never returns to a
// dead process.
func (f *fuse) touch(p *process) (done func()) {
	me := goroutine()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.touches++
	if p != nil && !p.dead && (f.left == 0 || f.when != nil && f.when()) {
		p.dead = true
		close(p.killed)
	}
	if f.left > 0 {
		f.left--
	}
	if p == nil {
		return func() {}
	}
	if p.dead {
		delete(p.changing, me) // it changes nothing any more
		p.ended.Broadcast()
		f.mu.Unlock()
		<-f.over
		f.mu.Lock()
		runtime.Goexit()
	}
	p.changing[me]++
	return func() { f.changed(p, me) }
}

// changed records that a change has returned.
func (f *fuse) changed(p *process, goroutine string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.changing[goroutine]--; p.changing[goroutine] <= 0 {
		delete(p.changing, goroutine)
	}
	p.ended.Broadcast()
}

// rest returns when no change of a dead process is under way any more. A change that another
// goroutine had begun when the process died happens before that, and must not happen after the next
// step of the test.
func (f *fuse) rest(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(p.changing) > 0 {
		p.ended.Wait()
	}
}

// goroutine returns the number of the calling goroutine.
func goroutine() string {
	var stack [64]byte
	n := runtime.Stack(stack[:], false)
	return strings.Fields(string(stack[:n]))[1] // goroutine 42 [running]:
}

// blow makes the process end at its n-th touch from now; -1 makes it live.
func (f *fuse) blow(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.when = n, nil
}

// blowOnce makes the process end at its first touch for which when returns true.
func (f *fuse) blowOnce(when func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.when = when
}

// touched returns the number of touches.
func (f *fuse) touched() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.touches
}

func (f *fuse) begin() *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current = &process{
		killed: make(chan struct{}), changing: map[string]int{}, ended: sync.NewCond(&f.mu),
	}
	return f.current
}

func (f *fuse) running() *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// callerKey is the context key of the process that opened a connection to the cluster.
type callerKey struct{}

// Changes that a process had begun when it was killed, in any goroutine, end before the test
// continues, however long they take; none begins after that.
func TestFuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fuse{left: -1, over: make(chan struct{})}
		defer close(f.over)
		p := f.begin()
		written, more := false, false
		go func() { // a download, in the midst of which another goroutine is killed
			outer := f.touch(p)
			defer outer()
			inner := f.touch(p)
			time.Sleep(time.Hour)
			written = true
			inner()
			f.touch(p)
			more = true
		}()
		synctest.Wait()
		f.blow(0)
		go f.touch(p)
		<-p.killed
		f.rest(p)
		if !written {
			t.Error("a change was still under way")
		}
		synctest.Wait()
		if more {
			t.Error("a dead process has changed something")
		}
	})
}

// killed runs a process that is killed at its n-th touch, and reports whether it was: it may have
// ended before.
func (w *world) killed(t *testing.T, n int, run func() error) bool {
	t.Helper()
	w.blow(n)
	err := run()
	w.blow(-1)
	if err != nil && !errors.Is(err, errKilled) {
		t.Fatalf("killed at touch %d: %v", n, err)
	}
	return err != nil
}

// long reports whether the long forms of the stories are requested (test/long).
func long() bool { return os.Getenv("LONG") != "" }

// kills kills a run at every step-th touch from a first one on, or with LONG=1 at every one, until
// the run ends before its kill, and returns the number of touches then.
func kills(t *testing.T, first, step int, killed func(n int, when string) bool) int {
	t.Helper()
	if long() {
		first, step = first%step, 1
	}
	n := first
	for killed(n, fmt.Sprintf("killed at touch %d", n)) && !t.Failed() {
		n += step
	}
	return n
}
