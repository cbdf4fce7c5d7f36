package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A key made for a trial signs a repository but cannot publish one; another key can.
func TestTrialKeyPublishesNothing(t *testing.T) {
	for _, program := range []string{"dpkg-deb", "gpg"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not on this machine", program)
		}
	}
	home, err := os.MkdirTemp("", "gpg-") // short: it holds the agent's socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	work := t.TempDir()
	if err := os.MkdirAll(filepath.Join(work, "x/DEBIAN"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "x/DEBIAN/control"), []byte("Package: x\nVersion: 1\n"+
		"Architecture: all\nMaintainer: x <x@example.com>\nDescription: x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("dpkg-deb", "--build", filepath.Join(work, "x"),
		filepath.Join(work, "x_1_all.deb")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(args ...string) error {
		root := newRoot(&options{})
		root.SetArgs(args)
		return root.ExecuteContext(t.Context())
	}
	repository := func(key, url string) error {
		return run("repository", "--home", filepath.Join(home, key), "--packages", work,
			"--repository", filepath.Join(work, "apt-"+key+"-"+filepath.Base(url)), "--url", url,
			"--architectures", "")
	}
	if err := repository("trial", ""); err != nil {
		t.Errorf("a trial: %v", err)
	}
	err = repository("trial", "https://example.org/x")
	if err == nil || !strings.Contains(err.Error(), "made for trials") {
		t.Errorf("with a key for trials: %v", err)
	}
	if _, err := os.Stat(filepath.Join(work, "apt-trial-x")); err == nil {
		t.Error("something of it was written")
	}
	if err := run("key", "--home", filepath.Join(home, "own"),
		"--name", "own <o@example.com>"); err != nil {
		t.Fatal(err)
	}
	if err := repository("own", "https://example.org/x"); err != nil {
		t.Errorf("with a key of its own: %v", err)
	}
}
