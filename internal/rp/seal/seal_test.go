package seal

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestABoxOpensOnlyAsWhatItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	old, err := Rotate(path)
	if err != nil {
		t.Fatal(err)
	}
	box, err := old.Seal("nodes/a", []byte("a secret"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(box.Data, []byte("secret")) {
		t.Error("the content is readable")
	}
	if _, err := old.Open("nodes/b", box); err == nil {
		t.Error("the box of one row opened as that of another")
	}
	for i := range box.Data {
		bent := Box{Key: box.Key, Wrapped: box.Wrapped, Data: bytes.Clone(box.Data)}
		bent.Data[i] ^= 1
		if _, err := old.Open("nodes/a", bent); err == nil {
			t.Fatalf("the box opened although byte %d was changed", i)
		}
	}

	rotated, err := Rotate(path)
	if err != nil {
		t.Fatal(err)
	}
	content, err := rotated.Open("nodes/a", box)
	if err != nil || string(content) != "a secret" {
		t.Errorf("after a rotation: %q, %v", content, err)
	}
	if rotated.Current(box) {
		t.Error("a box under the old key counts as current")
	}
	if err := Drop(path); err != nil {
		t.Fatal(err)
	}
	last, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := last.Open("nodes/a", box); err == nil || !strings.Contains(err.Error(), "not in the ring") {
		t.Errorf("a dropped key still opens: %v", err)
	}
}

func TestKeysThatOthersReadAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	if _, err := Rotate(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("got %v, want a refusal with its cure", err)
	}
	if err := os.WriteFile(path, []byte(`{"keys":[{"id":"x","key":"c2hvcnQ="}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil {
		t.Error("a short key was accepted")
	}
}
