package flexnode

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// audited matches a line of the provider's audit log in its source.
var audited = regexp.MustCompile(`Audit\.(?:Info|Warn)\(\s*"([^"]+)"`)

// Every audit line of the provider is in the reference.
func TestAuditLinesAreDocumented(t *testing.T) {
	const reference = "docs/reference/metrics.md"
	page, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, file := range files(t) {
		if !strings.HasPrefix(file, "internal/rp/") || path.Ext(file) != ".go" ||
			strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range audited.FindAllSubmatch(text, -1) {
			count++
			if !strings.Contains(string(page), "`"+string(line[1])+"`") {
				t.Errorf("%s: %s lacks the audit line %q", file, reference, line[1])
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d audit lines were found", count)
	}
}
