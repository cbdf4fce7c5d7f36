package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// withProgramOf binds a kubeconfig of h whose program is a shell script, and dials.
func withProgramOf(t *testing.T, h *hostile, script string) (*Connection, *program) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "operators.yaml")
	args := must(json.Marshal([]string{"-c", script}))
	replace(t, path, strings.Replace(h.config, "token: a-token", fmt.Sprintf(
		"exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, "+
			"interactiveMode: Never, provideClusterInfo: true, env: [{name: A, value: b}], args: %s}",
		args), 1))
	s := &Sources{Bindings: []Binding{{ClusterID: factoryID, Kubeconfig: path, Trusted: true,
		Local: true}}}
	a := must(s.Access(t.Context(), flexnode.Cluster{ID: factoryID}, false))
	return must(Dial(a)), a.program
}

const execCredential = `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",` +
	`"status":{"token":"%s"}}`

// The program of a trusted kubeconfig gets its input, runs once for many requests, and again when
// its token is refused.
func TestProgramGivesTokens(t *testing.T) {
	var want string
	h := newHostile(t, map[string]http.HandlerFunc{"/version": func(w http.ResponseWriter,
		r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+want {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprint(w, `{"gitVersion":"v1.35.4"}`)
	}})
	dir := t.TempDir()
	c, _ := withProgramOf(t, h, fmt.Sprintf(`cd %s; echo "$A $KUBERNETES_EXEC_INFO" > input
		echo x >> runs; printf '`+execCredential+`' "$(wc -l < runs)"`, dir, "%s"))
	want = "1"
	for range 3 {
		must(c.ask(t.Context()))
	}
	input := string(must(os.ReadFile(filepath.Join(dir, "input"))))
	if !strings.HasPrefix(input, "b {") || !strings.Contains(input, `"server":"`+h.URL) {
		t.Errorf("the input is %s", input)
	}
	want = "2"
	if _, err := c.ask(t.Context()); err == nil || !c.Doubtful() {
		t.Errorf("a refused token: %v", err)
	}
	must(c.ask(t.Context()))
	if n := len(must(os.ReadFile(filepath.Join(dir, "runs")))) / 2; n != 2 {
		t.Errorf("it has run %d times", n)
	}
}

// A program that hangs holds up no request longer than its deadline, and is killed with its
// children. The next request runs it again.
func TestProgramThatHangs(t *testing.T) {
	h := newHostile(t, nil)
	dir := t.TempDir()
	c, p := withProgramOf(t, h, fmt.Sprintf(`cd %s; if [ -e once ]; then
		printf '`+execCredential+`'; else touch once; sleep 300 & echo $! > child; wait; fi`,
		dir, "token"))
	p.timeout = 500 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := c.ask(ctx); !errors.Is(err, context.DeadlineExceeded) ||
		time.Since(began) > 400*time.Millisecond {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	if _, err := c.ask(t.Context()); err == nil || !strings.Contains(err.Error(), "did not end in time") {
		t.Errorf("a program that hangs: %v", err)
	}
	child := strings.TrimSpace(string(must(os.ReadFile(filepath.Join(dir, "child")))))
	until(t, "its child lives", func() bool {
		text, err := os.ReadFile("/proc/" + child + "/stat")
		return err != nil || strings.Contains(string(text), ") Z ")
	})
	must(c.ask(t.Context()))
}

// The output of a program is refused without credentials of its version.
func TestProgramOutput(t *testing.T) {
	const version = "client.authentication.k8s.io/v1"
	for text, flaw := range map[string]string{
		"":                      "cannot read",
		"{}":                    "no credentials",
		`{"apiVersion":"a/v1"}`: "no credentials",
		`{"apiVersion":"` + version + `","status":{}}`:                                  "no credentials",
		`{"apiVersion":"` + version + `","status":{"token":"x","clientKeyData":"bad"}}`: "certificate",
	} {
		if _, err := readShown([]byte(text), version); err == nil ||
			!strings.Contains(err.Error(), flaw) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
