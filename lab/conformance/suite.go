// Package conformance runs Kubernetes' own conformance tests, as its project builds them, on the
// lab's nodes: e2e.test of the lab's newest version, in several processes. It makes the tests'
// images and lists the tests that cannot run here, with the reasons. flexlab and the end-to-end
// tests use it; it starts no lab and no machine.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/component"
)

// Suite is the built tests.
type Suite struct {
	Lab *lab.Lab
	// Processes is the number of tests that run in parallel.
	Processes int
	// Out receives the tests' output.
	Out io.Writer

	programs string
	names    []string
}

// New builds the tests unless they are in the cache, and pushes their images to the lab's registry.
// The lab must be running.
func New(ctx context.Context, l *lab.Lab, processes int, out io.Writer) (*Suite, error) {
	programs, err := l.Component(ctx, component.KubernetesTests)
	if err != nil {
		return nil, err
	}
	s := &Suite{Lab: l, Processes: processes, Out: out, programs: programs}
	text, err := s.ask(ctx, "--list-conformance-tests")
	if err != nil {
		return nil, err
	}
	var tests []struct{ Codename string }
	if err := yaml.Unmarshal(text, &tests); err != nil {
		return nil, fmt.Errorf("cannot read the list of conformance tests: %w", err)
	}
	for _, t := range tests {
		s.names = append(s.names, t.Codename)
	}
	images, err := s.ask(ctx, "--list-images")
	if err != nil {
		return nil, err
	}
	return s, s.pushImages(ctx, strings.Fields(string(images)))
}

// ask returns a list that the suite's program prints.
func (s *Suite) ask(ctx context.Context, what string) ([]byte, error) {
	out, err := s.command(ctx, "e2e.test", what).Output()
	if err != nil {
		return nil, fmt.Errorf("e2e.test %s: %w", what, err)
	}
	return out, nil
}

// command returns a program of the suite, whose temporary files are in the lab's directory:
// e2e.test leaves some behind.
func (s *Suite) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.programs, program), args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+s.Lab.Dir)
	return cmd
}

// Matching returns the conformance tests whose names match; nil matches all.
func (s *Suite) Matching(focus *regexp.Regexp) []string {
	return slices.DeleteFunc(slices.Clone(s.names), func(name string) bool {
		return focus != nil && !focus.MatchString(name)
	})
}

// Run runs tests by their names, except those to leave out. Failed tests are in the result and
// cause no error.
func (s *Suite) Run(ctx context.Context, names []string) (Result, error) {
	var out Result
	for _, list := range [][]string{names, Quick(), Few()} {
		for _, name := range list {
			if !slices.Contains(s.names, name) {
				return out, fmt.Errorf("cannot run %q: it is no conformance test of %s", name,
					lab.Newest.Kubernetes)
			}
		}
	}
	reasons, err := LeftOut()
	if err != nil {
		return out, err
	}
	var run []string
	for _, name := range names {
		if reason, is := reasons[name]; is {
			out.leave(name, reason)
			continue
		}
		run = append(run, name)
	}
	if len(run) == 0 {
		return out, nil
	}
	dir := filepath.Join(s.Lab.Dir, "conformance")
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return out, fmt.Errorf("cannot run the tests: %w", err)
	}
	failed := s.ginkgo(ctx, dir, run)
	if failed != nil && errors.As(failed, new(*exec.ExitError)) {
		failed = nil // tests failed, or the suite did: the report has it
	}
	if failed != nil {
		return out, fmt.Errorf("cannot run the tests: %w", failed)
	}
	return out, out.read(filepath.Join(dir, reportFile), run)
}

const reportFile = "report.json"

// ginkgo runs the tests with ginkgo. When ctx is canceled, it interrupts ginkgo, which ends the
// tests.
func (s *Suite) ginkgo(ctx context.Context, dir string, names []string) error {
	var quoted []string
	for _, name := range names {
		quoted = append(quoted, regexp.QuoteMeta(name)+"$")
	}
	cmd := s.command(ctx, "ginkgo", "run",
		"--procs="+strconv.Itoa(s.Processes), "--no-color", "--timeout=3h", "--flake-attempts=2",
		"--keep-going", "--silence-skips", "--json-report="+reportFile, "--output-dir="+dir,
		"--focus="+strings.Join(quoted, "|"), filepath.Join(s.programs, "e2e.test"), "--",
		"--kubeconfig="+s.Lab.Kubeconfig(), "--provider=skeleton", "--dns-domain=cluster.local",
		"--kubectl-path="+filepath.Join(s.Lab.Dir, "kubectl"), "--delete-namespace-on-failure")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, s.Out, s.Out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 2 * time.Minute
	return cmd.Run()
}
