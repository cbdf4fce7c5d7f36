package judges

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// explained are gosec's findings that stay, each with its reason: a rule in files whose path
// matches.
var explained = []struct{ rules, path, why string }{
	{"G101", `/(health|node|rp)/`, "names of settings, conditions and labels, no credentials"},
	{"G104", `.`, "a file or answer that was read is closed, a writer of terminals keeps its error"},
	{"G103", `/host/swap\.go$`, "the argument of a system call is a pointer"},
	{"G115", `.`, "counts and times of the kernel, of etcd and of our own, all far below 2^63"},
	{"G117", `/config/secret\.go$`,
		"what writes a configuration for the machine has to write its secrets"},
	{"G122", `/artifact/store\.go$`, "the tree is root's own, and no other process writes there"},
	{"G125", `/flexnode-rp/ready\.go$`, "the paths are constants"},
	{"G204 G702", `/(host/program|rp/plugin/plugin|aks-flex-node/delivery)\.go$`, "the three places " +
		"that start programs: root's own ones, by lists of arguments, without a shell"},
	{"G302", `/(host/package|artifact/store|rp/store/embedded)\.go$`,
		"dpkg's lock, a program, a directory"},
	{"G304", `.`, "who may name a file is the affair of config.Trusted and of the policy"},
	{"G306", `/pagetest/`, "a page of the documents"},
	{"G402", `/(follow/authority|kube/reach)\.go$`, "VerifyConnection verifies"},
	{"G404", `.`, "pauses that replicas and agents do not take at once; secrets are of crypto/rand"},
	{"G407", `/rp/seal/seal\.go$`, "the cipher makes its own random nonce (NewGCMWithRandomNonce)"},
}

// gosec finds nothing in the two programs but what is explained, and all of that still.
func TestGosec(t *testing.T) {
	if os.Getenv("LONG") == "" {
		t.Skip("it takes minutes: test/long runs it")
	}
	report := filepath.Join(t.TempDir(), "report.json")
	program := filepath.Join(t.TempDir(), "gosec")
	build := exec.Command("go", "build", "-o", program, "github.com/securego/gosec/v2/cmd/gosec")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build gosec: %v\n%s", err, out)
	}
	scan := exec.Command(program, "-quiet", "-no-fail", "-fmt=json", "-out="+report,
		"-exclude-dir=internal/lab", "-exclude-dir=internal/azuresim", "./cmd/aks-flex-node",
		"./cmd/flexnode-rp", "./api/...", "./internal/...")
	scan.Dir = "../.."
	if out, err := scan.CombinedOutput(); err != nil {
		t.Fatalf("cannot run gosec: %v\n%s", err, out)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		Failed map[string]any `json:"Golang errors"`
		Issues []struct {
			Rule    string `json:"rule_id"`
			Details string `json:"details"`
			File    string `json:"file"`
			Line    string `json:"line"`
		}
		Stats struct{ Files int }
	}
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	if len(found.Failed) > 0 || found.Stats.Files < 300 {
		t.Fatalf("gosec has read %d files, and failed with %v", found.Stats.Files, found.Failed)
	}
	used := make([]bool, len(explained))
	for _, issue := range found.Issues {
		known := false
		for i, e := range explained {
			if strings.Contains(e.rules, issue.Rule) && regexp.MustCompile(e.path).MatchString(issue.File) {
				known, used[i] = true, true
			}
		}
		if !known {
			t.Errorf("%s:%s: %s: %s", issue.File, issue.Line, issue.Rule, issue.Details)
		}
	}
	for i, e := range explained {
		if !used[i] {
			t.Errorf("%s in %s is explained, and not found any more", e.rules, e.path)
		}
	}
}
