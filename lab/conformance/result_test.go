package conformance

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const report = `[{"SpecReports": [
  {"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
  {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeText": "pass [Conformance]",
   "LeafNodeType": "It", "State": "passed", "NumAttempts": 1},
  {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeText": "pass later [Conformance]",
   "LeafNodeType": "It", "State": "passed", "NumAttempts": 2},
  {"ContainerHierarchyTexts": ["[sig-node] Pods", "in time"], "LeafNodeText": "fail [Conformance]",
   "LeafNodeType": "It", "State": "timedout", "NumAttempts": 2, "Failure": {"Message": "late"}},
  {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeText": "need [Conformance]",
   "LeafNodeType": "It", "State": "skipped", "Failure": {"Message": "needs 3 nodes"}},
  {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeText": "other [Conformance]",
   "LeafNodeType": "It", "State": "skipped"},
  {"LeafNodeType": "SynchronizedAfterSuite", "State": "failed", "Failure": {"Message": "no end"}}
]}]`

func TestResult(t *testing.T) {
	file := filepath.Join(t.TempDir(), reportFile)
	if err := os.WriteFile(file, []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	got := Result{LeftOut: []string{"[sig-node] Swap [Conformance]: shared kernel"}}
	var names []string
	for _, name := range []string{"pass", "pass later", "in time fail", "need", "gone"} {
		names = append(names, "[sig-node] Pods "+name+" [Conformance]")
	}
	if err := got.read(file, names); err != nil {
		t.Fatal(err)
	}
	want := Result{
		Passed: 2, Flaky: 1,
		Failed: []string{
			"[sig-node] Pods in time fail [Conformance]: late",
			"SynchronizedAfterSuite: no end",
			"[sig-node] Pods gone [Conformance]: it did not run",
		},
		LeftOut: []string{
			"[sig-node] Swap [Conformance]: shared kernel",
			"[sig-node] Pods need [Conformance]: needs 3 nodes",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	line := "conformance ran=5 passed=2 failed=3 flaky=1 left_out=2"
	if got.String() != line {
		t.Errorf("the line is %q, want %q", got, line)
	}
}

// The tests after each change are few enough for the time, and can all run.
func TestLists(t *testing.T) {
	reasons, err := LeftOut()
	if err != nil {
		t.Fatal(err)
	}
	for name, reason := range reasons {
		conformance := strings.Contains(name, "[Conformance]") || strings.HasSuffix(name, nodeMark)
		if !conformance || len(reason) < 20 {
			t.Errorf("%q is left out for %q", name, reason)
		}
	}
	for want, list := range map[int][]string{60: Quick(), 10: Few()} {
		if len(list) != want || !slices.IsSorted(list) || len(slices.Compact(list)) != want {
			t.Errorf("a list has %d tests, want %d, sorted and each once", len(list), want)
		}
		for _, name := range list {
			if reasons[name] != "" || !slices.Contains(Quick(), name) {
				t.Errorf("%q is left out, or not in the quick list", name)
			}
		}
	}
}
