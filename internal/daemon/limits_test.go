package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// limit is a duration in a source file of another package, after the text that names it.
type limit struct {
	file, name string
	times      float64 // how often it is waited for; 0 is once
}

var units = map[string]time.Duration{
	"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute,
}

// read returns the duration that the source file has.
func (l limit) read(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", l.file))
	if err != nil {
		t.Fatal(err)
	}
	value := regexp.MustCompile(regexp.QuoteMeta(l.name) +
		`\s*[=:,]\s*(?:(\d+)\s*\*\s*)?time\.(\w+)`).FindSubmatch(text)
	if value == nil {
		t.Fatalf("internal/%s has no duration after %q: correct the table", l.file, l.name)
	}
	n := 1
	if len(value[1]) > 0 {
		n, _ = strconv.Atoi(string(value[1]))
	}
	d := time.Duration(n) * units[string(value[2])]
	if d == 0 {
		t.Fatalf("internal/%s: cannot read the duration after %q", l.file, l.name)
	}
	if l.times > 0 {
		d = time.Duration(float64(d) * l.times)
	}
	return d
}

// The longest times between two beats of the worker, as the sums of the limits that bound them.
var silences = map[string][]limit{
	"a job of systemd, and the connection to it": {
		{file: "host/dbus.go", name: "s.JobTimeout"}, {file: "host/dbus.go", name: "s.CallTimeout"},
	},
	"a program": {{file: "host/program.go", name: "beatEvery"}},
	"a token, after another process has failed to get one": {
		{file: "identity/fresh.go", name: "issuerTimeout", times: 2},
	},
	"a list of pods, and an eviction": {
		{file: "kube/client.go", name: "requestTimeout", times: 2},
		{file: "kube/drain.go", name: "o.Retry", times: 1.5},
	},
	"waiting for the Node": {
		{file: "kube/client.go", name: "requestTimeout"},
		{file: "kube/node.go", name: "mostPause", times: 1.5},
	},
	"an evaluation of the gate": {
		{file: "agent/inspect/evidence.go", name: "ClusterTimeout", times: 2},
		{file: "agent/inspect/evidence.go", name: "http.Client{Timeout"},
		{file: "agent/inspect/services.go", name: "serviceTimeout"},
		{file: "kube/runtime.go", name: "runtimeTimeout", times: 2},
		{file: "agent/change/gate.go", name: "maxGatePause", times: 1.5},
	},
	// A pause is spread by half.
	"a try to learn a checksum": {
		{file: "artifact/resolve.go", name: "checksumTimeout"},
		{file: "artifact/policy.go", name: "&p.MaxBackoff", times: 1.5},
	},
	"a try of a download": {
		{file: "artifact/client.go", name: "net.Dialer{Timeout"},
		{file: "artifact/policy.go", name: "&p.Stall"},
		{file: "artifact/policy.go", name: "&p.MaxBackoff", times: 1.5},
	},
}

func TestNoWaitIsAStall(t *testing.T) {
	silent := map[string]time.Duration{"a check": checkMost}
	for what, limits := range silences {
		for _, l := range limits {
			silent[what] += l.read(t)
		}
	}
	for what, d := range silent {
		if d > stall {
			t.Errorf("%s may be silent for %s, and the watchdog is not fed after %s", what, d, stall)
		}
	}
}

// What systemd allows is more than what the loop allows its worker.
func TestUnitAllows(t *testing.T) {
	unit, err := os.ReadFile("../../packaging/systemd/aks-flex-node-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	setting := func(name string) time.Duration {
		value := regexp.MustCompile(`(?m)^` + name + `=(\d+)(min|s|)$`).FindSubmatch(unit)
		if value == nil {
			t.Fatalf("the unit has no %s", name)
		}
		unit := "s"
		if string(value[2]) == "min" {
			unit = "m"
		}
		d, err := time.ParseDuration(fmt.Sprintf("%s%s", value[1], unit))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if w := setting("WatchdogSec"); stall >= w {
		t.Errorf("a worker may be silent for %s, and systemd waits for %s", stall, w)
	}
	if s := setting("TimeoutStopSec"); stopMost >= s {
		t.Errorf("a worker may take %s to stop, and systemd waits for %s", stopMost, s)
	}
}
