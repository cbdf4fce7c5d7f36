package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// routed returns a lab whose kubectl and ip are scripts; set returns the routes set so far. The
// n-th call of kubectl runs the n-th script, later calls the last one.
func routed(t *testing.T, ip string, kubectl ...string) (l *Lab, set func() []string) {
	t.Helper()
	dir := t.TempDir()
	script := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all := "PATH=/usr/bin:/bin; echo >>runs; case $(wc -l <runs) in\n"
	for n, text := range kubectl {
		if n++; n == len(kubectl) {
			all += "*"
		} else {
			all += fmt.Sprint(n)
		}
		all += ") " + text + ";;\n"
	}
	script(filepath.Join(dir, "kubectl"), "cd "+dir+"; "+all+"esac")
	script(filepath.Join(dir, "ip"), `cd `+dir+`; echo "$3 $5" >>set; `+ip)
	t.Setenv("PATH", dir)
	return &Lab{Dir: dir}, func() []string {
		text, err := os.ReadFile(filepath.Join(dir, "set"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}

// However the watch of Nodes ends, the next one sets only routes that are new.
func TestRoutesAreFollowed(t *testing.T) {
	const one, two = "echo 10.244.1.0/24 10.77.0.11", "echo 10.244.2.0/24 10.77.0.12"
	l, set := routed(t, "",
		"exit 1", // the API server is down
		one,      // the watch is closed
		one+"; echo '  10.77.0.13'; echo too old resource version >&2; exit 1",
		one+"; "+two,
		"echo 10.244.1.0/24 10.77.0.14") // another machine got the subnet
	known := map[string]string{}
	for range 5 {
		_ = l.followRoutes(t.Context(), known)
	}
	if diff := cmp.Diff([]string{"10.244.1.0/24 10.77.0.11", "10.244.2.0/24 10.77.0.12",
		"10.244.1.0/24 10.77.0.14"}, set()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A route that cannot be set does not block others, and is retried soon, even if no Node changes.
func TestRoutesThatCannotBeSet(t *testing.T) {
	l, set := routed(t, `case "$3" in 10.244.1.0/24) exit 2; esac`,
		"echo 10.244.1.0/24 10.77.0.11; echo 10.244.2.0/24 10.77.0.12; exec sleep 60")
	began, known := time.Now(), map[string]string{}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := l.followRoutes(ctx, known)
	if err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	if diff := cmp.Diff([]string{"10.244.1.0/24 10.77.0.11", "10.244.2.0/24 10.77.0.12"},
		set()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"10.244.2.0/24": "10.77.0.12"}, known); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The watch ends with the lab.
func TestRoutesEnd(t *testing.T) {
	l, _ := routed(t, "", "exec sleep 60")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	began := time.Now()
	if l.watchRoutes(ctx); time.Since(began) > 10*time.Second {
		t.Errorf("after %s", time.Since(began))
	}
}
