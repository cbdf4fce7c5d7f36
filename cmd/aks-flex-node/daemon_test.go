package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What cures a configuration that is refused, such as another owner, makes it another one.
func TestChanged(t *testing.T) {
	o := &options{config: filepath.Join(t.TempDir(), "config.json")}
	changed := o.changed()
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"made", func() error { return os.WriteFile(o.config, []byte("{}"), 0o644) }},
		{"another mode", func() error { return os.Chmod(o.config, 0o600) }},
		{"another owner", func() error { return os.Chown(o.config, os.Geteuid(), os.Getegid()) }},
		{"written", func() error { return os.WriteFile(o.config, []byte("[]"), 0o600) }},
		{"removed", func() error { return os.Remove(o.config) }},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if !changed() {
			t.Errorf("%s: not noticed", step.name)
		}
		if changed() {
			t.Errorf("%s: noticed twice", step.name)
		}
	}
}
