package stories

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/agent/service"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// serviceStory is a machine on which the daemon runs as a service, in simulated time.
type serviceStory struct {
	*world
	t *testing.T

	mu sync.Mutex
	// file is the configuration file, version counts its changes; host is the name of the machine.
	file    []byte
	version int
	host    string
	// hole makes the network swallow whatever is sent to the API server.
	hole bool
	// full makes the disk take no bundle.
	full bool

	// later is added to the times of units that the agent reads.
	later time.Duration

	messages []string    // to systemd
	loads    []time.Time // when the configuration was read
	// kubelet are called when kubelet is started; an error makes that fail.
	kubelet []func() error
	// What the machine was asked for that costs something: reading journals, and running programs.
	journals, runs int
	// units counts how often systemd was asked for each, checks how often its connection was
	// closed.
	units  map[string]int
	checks int

	stop    context.CancelFunc
	ended   chan struct{}
	outcome transition.Outcome
}

// story runs a story of a machine with a daemon, which is stopped at its end.
func story(t *testing.T, tell func(t *testing.T, s *serviceStory)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &serviceStory{world: newWorld(t), t: t, host: "edge-1", units: map[string]int{}}
		s.write("/run/systemd/system/.keep", "")
		start := s.systemd.OnStart
		s.systemd.OnStart = func(unit, text string) error {
			if unit == "kubelet.service" {
				if err := s.kubeletStarts(); err != nil {
					return err
				}
			}
			return start(unit, text)
		}
		s.edit()
		tell(t, s)
		s.end()
	})
}

// onKubelet calls do whenever kubelet is started from now on.
func (s *serviceStory) onKubelet(do func() error) {
	s.set(func() { s.kubelet = append(s.kubelet, do) })
}

func (s *serviceStory) kubeletStarts() error {
	s.mu.Lock()
	hooks := s.kubelet
	s.mu.Unlock()
	for _, do := range hooks {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// started counts the starts of kubelet from now on.
func (s *serviceStory) started() func() int {
	n := 0
	s.onKubelet(func() error { s.set(func() { n++ }); return nil })
	return func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return n
	}
}

// edit writes the usual configuration file with changes.
func (s *serviceStory) edit(change ...func(map[string]any)) []byte {
	s.t.Helper()
	slow := func(c map[string]any) { c["agent"].(map[string]any)["readyTimeout"] = "1m" }
	text := s.document(append([]func(map[string]any){slow}, change...)...)
	s.save(text)
	return text
}

// save writes the configuration file.
func (s *serviceStory) save(text []byte) {
	s.set(func() { s.file, s.version = text, s.version+1 })
}

// set changes the daemon's surroundings.
func (s *serviceStory) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// pods, policy and label return changes of the usual configuration.
func pods(n int) func(map[string]any) {
	return func(c map[string]any) { c["node"].(map[string]any)["maxPods"] = n }
}

func policy(p string) func(map[string]any) {
	return func(c map[string]any) { c["agent"].(map[string]any)["driftPolicy"] = p }
}

func readyTimeout(d string) func(map[string]any) {
	return func(c map[string]any) { c["agent"].(map[string]any)["readyTimeout"] = d }
}

// load reads the configuration file like the daemon.
func (s *serviceStory) load() (change.Input, error) {
	s.mu.Lock()
	text, name, origin := s.file, s.host, "file"
	if bundle := s.bundle(); bundle != "" {
		text, origin = []byte(bundle), "url"
	}
	s.loads = append(s.loads, time.Now())
	s.mu.Unlock()
	before, err := inspect.Applied(context.Background(), (&inspect.Env{Reader: s.process().Machine}))
	if err != nil {
		return change.Input{}, err
	}
	read, err := config.Parse(text,
		config.Host{HostName: name, Arch: runtime.GOARCH, Before: before})
	if err != nil {
		return change.Input{Origin: origin}, err
	}
	return change.Input{
		Config: read.Config, Document: read.Document, Origin: origin, Resource: read.Resource,
	}, nil
}

// process returns the agent of the service, with its usual pauses.
func (s *serviceStory) process() *change.Agent {
	a := s.agent()
	a.Poll, a.Settling, a.InService = 0, 0, true
	a.Machine = &costly{Machine: a.Machine, service: s}
	a.Reader = a.Machine
	dial := a.Dial
	a.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		s.mu.Lock()
		hole := s.hole
		s.mu.Unlock()
		if hole {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return dial(ctx, network, address)
	}
	return a
}

// costly counts costly requests to a machine.
type costly struct {
	change.Machine
	service *serviceStory
}

func (c *costly) Journal(ctx context.Context, unit string, lines int) []string {
	c.service.set(func() { c.service.journals++ })
	return c.Machine.Journal(ctx, unit, lines)
}

func (c *costly) UnitStatus(ctx context.Context, name string) (host.UnitStatus, error) {
	c.service.set(func() { c.service.units[name]++ })
	is, err := c.Machine.UnitStatus(ctx, name)
	c.service.set(func() { is.Since = is.Since.Add(c.service.later) })
	return is, err
}

func (c *costly) Observe(ctx context.Context, key state.Key) (state.Resource, error) {
	if name, ok := strings.CutPrefix(string(key), "unit:"); ok {
		c.service.set(func() { c.service.units[name]++ })
	}
	return c.Machine.Observe(ctx, key)
}

func (c *costly) Close() {
	c.service.set(func() { c.service.checks++ })
	c.Machine.Close()
}

func (c *costly) Run(
	ctx context.Context, limit time.Duration, secret []byte, argv ...string,
) ([]byte, error) {
	c.service.set(func() { c.service.runs++ })
	return c.Machine.Run(ctx, limit, secret, argv...)
}

// start starts the service, like its program (cmd/aks-flex-node).
func (s *serviceStory) start() {
	s.t.Helper()
	a := s.process()
	claim, err := change.Acquire(a, saved.DaemonLockFile, "agent")
	if err != nil {
		s.t.Fatal(err)
	}
	live := service.NewLive("1.2.3")
	live.Attach(a)
	seen, bundle, owners := s.version, s.bundle(), s.ownersFiles()
	follows := s.following(a, live)
	hints := make(chan string)
	d := &daemon.Daemon{
		Node: &service.Watcher{Agent: a, Load: s.load, Follows: follows, Live: live},
		Changed: func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			changed := s.version != seen || s.bundle() != bundle || s.ownersFiles() != owners
			seen, bundle, owners = s.version, s.bundle(), s.ownersFiles()
			return changed
		},
		Hints: hints, Watchdog: 3 * time.Minute, Budget: service.Repairs(a), Told: live.Job,
		Log:    a.Log,
		Notify: func(message string) { s.set(func() { s.messages = append(s.messages, message) }) },
	}
	d.Received, d.Deleted = follows.Signals()
	a.Beat, a.Proving = d.Beat, d.Proving
	ctx, stop := context.WithCancel(s.t.Context())
	s.stop, s.ended = stop, make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		service.Deleted(ctx, a, func(hint string) {
			select {
			case hints <- hint:
			case <-ctx.Done():
			}
		})
	})
	watching.Go(func() { follows.Run(ctx) })
	go func() {
		defer close(s.ended)
		s.outcome = d.Run(ctx)
		claim.Close()
		stop()
		watching.Wait()
	}()
	synctest.Wait()
}

// end stops the service and waits for its end.
func (s *serviceStory) end() {
	if s.stop != nil {
		s.stop()
		<-s.ended
		s.unlock()
	}
}

// left fails unless the daemon ends because its work is done.
func (s *serviceStory) left() {
	s.t.Helper()
	s.until(5*time.Minute, "the daemon ends", func() bool {
		select {
		case <-s.ended:
			return true
		default:
			return false
		}
	})
	if s.outcome.Kind != transition.Left {
		s.t.Errorf("the daemon ended with %v", s.outcome)
	}
}

func (s *serviceStory) restart() {
	s.end()
	s.start()
}

// sleep lets time pass.
func (s *serviceStory) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// rests lets a long time pass in which nothing must change: half an hour of it, or with LONG=1 all
// of it, since each day has thousands of checks and polls.
func (s *serviceStory) rests(d time.Duration) {
	if !long() {
		d = min(d, 30*time.Minute)
	}
	s.sleep(d)
}

// ends lets time pass until the daemon has ended.
func (s *serviceStory) ends() {
	s.t.Helper()
	s.until(10*time.Minute, "the daemon ends", func() bool {
		select {
		case <-s.ended:
			return true
		default:
			return false
		}
	})
}

// until lets time pass until a condition holds, and returns how long it took; the story fails if it
// does not hold within the given time.
func (s *serviceStory) until(within time.Duration, what string, holds func() bool) time.Duration {
	s.t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > within {
			s.t.Fatalf("not within %s: %s\nstatus: %s\n%s", within, what, s.raw(), s.log.String())
		}
		s.sleep(time.Second)
	}
	return time.Since(began)
}

// join starts the service and waits until the machine is a healthy node.
func (s *serviceStory) join() {
	s.t.Helper()
	s.start()
	s.until(time.Minute, "the machine is a node", s.isReady)
	s.until(time.Minute, "nothing is under way", func() bool { return s.is().Transition == nil })
}

// isReady reports whether the daemon has found the Node Ready.
func (s *serviceStory) isReady() bool { return s.is().Ready == "True" }

// reverted reports whether the kernel's setting is the one of another process.
func (s *serviceStory) reverted() bool { return s.read(forwardSysctl) == "0\n" }

// takes returns a check that kubelet's max pods is a number.
func (s *serviceStory) takes(pods string) func() bool {
	return func() bool { return maxPods(s.root) == pods }
}

// registered reports whether the cluster has the Node.
func (s *serviceStory) registered() bool { return s.cluster.has("edge-1") }

// told returns the messages to systemd that begin with a word.
func (s *serviceStory) told(word string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	other := func(m string) bool { return !strings.HasPrefix(m, word) }
	return slices.DeleteFunc(slices.Clone(s.messages), other)
}

func (s *serviceStory) raw() string {
	data, err := os.ReadFile(filepath.Join(s.root, inspect.StatusFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return string(data)
}

// is returns the status that the daemon wrote last.
func (s *serviceStory) is() (status inspect.Status) {
	s.t.Helper()
	if text := s.raw(); text != "" {
		if err := json.Unmarshal([]byte(text), &status); err != nil {
			s.t.Fatal(err)
		}
	}
	return status
}

// condition returns a condition of the status.
func (s *serviceStory) condition(name string) health.Condition {
	s.t.Helper()
	conditions := s.is().Conditions
	i := slices.IndexFunc(conditions, func(c health.Condition) bool { return c.Type == name })
	if i < 0 {
		return health.Condition{}
	}
	return conditions[i]
}

// drifts returns the keys of drifted resources.
func (s *serviceStory) drifts() []string {
	keys := map[string]bool{}
	for _, d := range s.is().Drift {
		keys[string(d.Key)] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

// healthy fails unless the machine is a node with so many pods, without a transition and without
// drift.
func (s *serviceStory) healthy(pods string) {
	s.t.Helper()
	s.sleep(2 * time.Minute)
	status := s.is()
	quiet := len(status.Drift) == 0 && status.Transition == nil
	if status.Ready != "True" || !quiet || maxPods(s.root) != pods {
		s.t.Errorf("the node takes %s pods, want %s; status: %s", maxPods(s.root), pods, s.raw())
	}
	if time.Since(status.CheckedAt) > 2*time.Minute {
		s.t.Errorf("the node was checked last %s ago", time.Since(status.CheckedAt))
	}
}

// dropGeneration removes the resources of the applied generation.
func (s *serviceStory) dropGeneration() {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.root, saved.StateDir, "generations/*/node.json"))
	if err != nil || len(files) != 1 {
		s.t.Fatal(files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		s.t.Fatal(err)
	}
}
