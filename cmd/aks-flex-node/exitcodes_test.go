package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// codeRow matches a row of the table of exit codes: the code, and what it means.
var codeRow = regexp.MustCompile(`(?m)^\| ([0-9]) \| (.*) \|$`)

// scripted matches a line of a script that runs the program, with its exit code.
var scripted = regexp.MustCompile(`(?m)^(?:\[\S+\] )?exits ([0-9]) (?:sh -c .)?aks-flex-node (.*)$`)

// Each command has, for each exit code that the table in docs/reference/cli.md says it has, a line
// in a script of test/stories or, where it needs a node, of lab/e2e.
func TestEveryExitCodeIsScripted(t *testing.T) {
	var names []string
	var list func(cmd *cobra.Command, name string)
	list = func(cmd *cobra.Command, name string) {
		if !cmd.HasSubCommands() {
			names = append(names, name)
		}
		for _, sub := range cmd.Commands() {
			list(sub, strings.TrimSpace(name+" "+sub.Name()))
		}
	}
	list(newRoot(&options{}), "")
	if len(names) < 19 {
		t.Fatalf("there are %d commands: %q", len(names), names)
	}
	page, err := os.ReadFile("../../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name) {
			t.Errorf("docs/reference/cli.md lacks the command %s", name)
		}
	}
	there := scripts(t, names)
	rows := codeRow.FindAllStringSubmatch(string(page), -1)
	if len(rows) != exitNoNode+1 {
		t.Fatalf("the table has %d exit codes", len(rows))
	}
	for _, row := range rows {
		for _, name := range names {
			may := !strings.Contains(row[2], "`") || strings.Contains(row[2], "`"+name+"`")
			if is := there[row[1]+" "+name]; is != may {
				t.Errorf("exit code %s of `%s`: in a script: %v, in the table: %v", row[1], name, is, may)
			}
		}
	}
}

// scripts returns which commands are in a script with which exit code, as "CODE COMMAND".
func scripts(t *testing.T, names []string) map[string]bool {
	t.Helper()
	var files []string
	for _, pattern := range []string{"../../test/stories/*.txtar", "../../lab/e2e/*.txtar"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("there are no scripts %s: %v", pattern, err)
		}
		files = append(files, found...)
	}
	longest := slices.SortedFunc(slices.Values(names),
		func(a, b string) int { return len(b) - len(a) })
	there := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range scripted.FindAllStringSubmatch(string(text), -1) {
			for _, name := range longest {
				if strings.HasPrefix(line[2]+" ", name+" ") && !strings.Contains(line[2], "--help") {
					there[fmt.Sprintf("%s %s", line[1], name)] = true
					break
				}
			}
		}
	}
	return there
}
