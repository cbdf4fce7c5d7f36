package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// An error that quotes others moves no cursor, and does not reorder what is shown.
func TestErrorsAreShownPlainly(t *testing.T) {
	name := filepath.Join(t.TempDir(), "stderr")
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	code := run(t.Context(), []string{"config", "validate", "--config", "/x\x1b[2J\u202ey"}, out, out)
	shown, err := os.ReadFile(name)
	if err != nil || code == 0 {
		t.Fatal(code, err)
	}
	if bytes.ContainsAny(shown, "\x1b\u202e") || !bytes.Contains(shown, []byte(`/x\u001b[2J\u202ey`)) {
		t.Errorf("%q", shown)
	}
}

// The shell of su without "-", and cron, lack the directories of iptables and nft.
func TestToolsAreFound(t *testing.T) {
	t.Setenv("PATH", "/usr/bin:/bin")
	run(t.Context(), []string{"version"}, os.Stdout, os.Stderr)
	if path := os.Getenv("PATH"); path != "/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin" {
		t.Errorf("PATH is %s", path)
	}
}
