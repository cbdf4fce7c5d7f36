package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Result tells how tests have ended.
type Result struct {
	Passed, Flaky int
	// Failed and LeftOut are tests, each with its reason.
	Failed, LeftOut []string
}

// String is the line that a run ends with.
func (r Result) String() string {
	return fmt.Sprintf("conformance ran=%d passed=%d failed=%d flaky=%d left_out=%d",
		r.Passed+len(r.Failed), r.Passed, len(r.Failed), r.Flaky, len(r.LeftOut))
}

func (r *Result) leave(name, reason string) { r.LeftOut = append(r.LeftOut, name+": "+reason) }

// spec holds the fields of a test in a report. Source: types.SpecReport of ginkgo.
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

// read adds what a report says of tests; without names, of all that ran. A test of which it says
// nothing has failed, and so has the run when what surrounds the tests has.
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

// add counts a test, if it ran or says why it did not.
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
