package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeepsOnlyMethodsItCalls: the linker leaves out methods that are never called, unless some
// code that the program reaches, such as text/template, calls methods by their names. It would cost
// a fifth of the program, on disk and in the daemon's memory.
func TestKeepsOnlyMethodsItCalls(t *testing.T) {
	link := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w -dumpdep",
		"-o", filepath.Join(t.TempDir(), "aks-flex-node"), ".")
	link.Env = append(link.Environ(), "CGO_ENABLED=0")
	reached, err := link.CombinedOutput() // the linker writes "caller <attributes> -> callee"
	if err != nil {
		t.Fatalf("cannot build the program: %v\n%s", err, reached)
	}
	if !strings.Contains(string(reached), "main.main -> ") {
		t.Fatal("the linker has not told what the program reaches")
	}
	for line := range strings.Lines(string(reached)) {
		if caller, _, _ := strings.Cut(line, " -> "); strings.HasSuffix(caller, "<ReflectMethod>") {
			t.Errorf("%s calls methods by their names", strings.Fields(caller)[0])
		}
	}
}
