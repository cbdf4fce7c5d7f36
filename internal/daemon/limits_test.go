package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// limit is a duration in the source of another package, after the text that names it.
type limit struct {
	room, name string
	times      float64 // how often it is waited for; 0 is once
}

var units = map[string]time.Duration{
	"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute,
}

// read returns the duration that the package's source has, in exactly one place.
func (l limit) read(t *testing.T) time.Duration {
	t.Helper()
	named := regexp.MustCompile(regexp.QuoteMeta(l.name) +
		`\s*[=:,]\s*(?:(\d+)\s*\*\s*)?time\.(\w+)`)
	files, err := filepath.Glob(filepath.Join("..", l.room, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var found [][][]byte
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, named.FindAllSubmatch(text, -1)...)
	}
	if len(found) != 1 {
		t.Fatalf("internal/%s has %d durations after %q: correct the table", l.room, len(found), l.name)
	}
	value := found[0]
	n := 1
	if len(value[1]) > 0 {
		n, _ = strconv.Atoi(string(value[1]))
	}
	d := time.Duration(n) * units[string(value[2])]
	if d == 0 {
		t.Fatalf("internal/%s: cannot read the duration after %q", l.room, l.name)
	}
	if l.times > 0 {
		d = time.Duration(float64(d) * l.times)
	}
	return d
}

// The longest times between two beats of the worker, as the sums of the limits that bound them.
var silences = map[string][]limit{
	"a job of systemd, and the connection to it": {
		{room: "host", name: "s.JobTimeout"}, {room: "host", name: "s.CallTimeout"},
	},
	"a program": {{room: "host", name: "beatEvery"}},
	"a token, after another process has failed to get one": {
		{room: "identity", name: "issuerTimeout", times: 2},
	},
	"a token by a new credential": {
		{room: "identity", name: "Propagation"}, {room: "identity", name: "issuerTimeout"},
	},
	"a list of pods, and an eviction": {
		{room: "kube", name: "requestTimeout", times: 2},
		{room: "kube", name: "o.Retry", times: 1.5},
	},
	"waiting for the Node": {
		{room: "kube", name: "requestTimeout"},
		{room: "kube", name: "maxPause", times: 1.5},
	},
	"an evaluation of the gate": {
		{room: "agent/inspect", name: "AnswerTimeout", times: 2},
		{room: "kube", name: "healthzTimeout"},
		{room: "kube", name: "serviceTimeout"},
		{room: "kube", name: "runtimeTimeout", times: 2},
		{room: "agent/change", name: "maxGatePause", times: 1.5},
	},
	"the end of a pod's sandbox":              {{room: "kube", name: "stopTimeout"}},
	"the question whether a change may begin": {{room: "follow", name: "beginLimit"}},
	// A pause is spread by half.
	"a try to learn a checksum": {
		{room: "artifact", name: "checksumTimeout"},
		{room: "artifact", name: "maxBackoff", times: 1.5},
	},
	"a try of a download": {
		{room: "artifact", name: "net.Dialer{Timeout"},
		{room: "artifact", name: "patience"},
		{room: "artifact", name: "maxBackoff", times: 1.5},
	},
}

func TestNoWaitIsAStall(t *testing.T) {
	silent := map[string]time.Duration{"a check": checkLimit}
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
	if s := setting("TimeoutStopSec"); stopLimit >= s {
		t.Errorf("a worker may take %s to stop, and systemd waits for %s", stopLimit, s)
	}
}
