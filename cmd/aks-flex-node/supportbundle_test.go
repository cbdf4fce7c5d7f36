package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/Azure/AKSFlexNode/internal/agent/support"
	"github.com/Azure/AKSFlexNode/internal/redact"
)

// A sealed bundle can be read by its recipient alone.
func TestEncrypt(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	seal, err := support.Encrypt(id.Recipient().String())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := seal(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "what is inside"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "inside") {
		t.Error("it is not encrypted")
	}
	opened, err := age.Decrypt(&out, id)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(opened); err != nil || string(text) != "what is inside" {
		t.Errorf("it holds %q, %v", text, err)
	}
	if _, err := support.Encrypt("age1nobody"); err == nil {
		t.Error("a recipient that is none is taken")
	}
}

// A bundle is its owner's alone, replaces no file, and one that fails leaves none.
func TestBundleFile(t *testing.T) {
	o := &options{out: os.Stderr, err: os.Stderr}
	name := filepath.Join(t.TempDir(), "bundle.tar.gz")
	fails := func(io.Writer) (redact.Manifest, error) { return redact.Manifest{}, io.ErrShortWrite }
	if err := o.bundle(name, fails); err == nil {
		t.Error("a failure is not told")
	}
	works := func(w io.Writer) (redact.Manifest, error) {
		_, err := io.WriteString(w, "x")
		return redact.Manifest{}, err
	}
	if err := o.bundle(name, works); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := o.bundle(name, works); err == nil {
		t.Error("a file that was there is replaced")
	}
}
