package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Result holds the results of tests.
type Result struct {
	Passed, Flaky int
	// Failed and LeftOut are tests with their reasons.
	Failed, LeftOut []string
}

// String returns the last line of a run.
func (r Result) String() string {
	return fmt.Sprintf("conformance ran=%d passed=%d failed=%d flaky=%d left_out=%d",
		r.Passed+len(r.Failed), r.Passed, len(r.Failed), r.Flaky, len(r.LeftOut))
}

func (r *Result) leave(name, reason string) { r.LeftOut = append(r.LeftOut, name+": "+reason) }

// spec holds the used fields of a test in a report. Source: types.SpecReport of ginkgo.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	NumAttempts             int
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
}

// read adds a report's results of the named tests, or of all that ran if names is nil. A test that
// is missing has failed. A failed setup or teardown counts as a failure too.
func (r *Result) read(file string, names []string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cannot read the tests' report: %w", err)
	}
	var reports []struct{ SpecReports []spec }
	if err := json.Unmarshal(data, &reports); err != nil {
		return fmt.Errorf("cannot read the tests' report %s: %w", file, err)
	}
	missing := slices.Clone(names)
	for _, report := range reports {
		for _, s := range report.SpecReports {
			name := s.name()
			if s.LeafNodeType != "It" {
				if s.State != "passed" {
					r.Failed = append(r.Failed, s.LeafNodeType+": "+s.Failure.Message)
				}
				continue
			}
			i := slices.Index(missing, name)
			if (i >= 0 || names == nil) && r.add(name, s) && i >= 0 {
				missing = slices.Delete(missing, i, i+1)
			}
		}
	}
	for _, name := range missing {
		r.Failed = append(r.Failed, name+": it did not run")
	}
	return nil
}

// add counts a test. It returns false if the test did not run and no reason is given.
func (r *Result) add(name string, s spec) bool {
	switch {
	case s.State == "passed":
		r.Passed++
		if s.NumAttempts > 1 {
			r.Flaky++
		}
	case s.State == "skipped" && s.Failure.Message != "":
		r.leave(name, s.Failure.Message)
	case s.State == "skipped" || s.State == "pending":
		return false
	default:
		r.Failed = append(r.Failed, name+": "+s.Failure.Message)
	}
	return true
}
