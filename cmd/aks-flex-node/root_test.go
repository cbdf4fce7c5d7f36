package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A configuration that was named for unbootstrap and cannot be read ends it; the usual one is left
// out with a warning, and one that is not there without.
func TestGiven(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(bad, []byte(`{"azure":`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path   string
		named, fails bool
		warning      string
	}{
		{"named and bad", bad, true, true, ""},
		{"named and missing", bad + ".none", true, true, ""},
		{"the usual one, bad", bad, false, false, "the configuration is not used"},
		{"the usual one, missing", bad + ".none", false, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			warnings, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
			if err != nil {
				t.Fatal(err)
			}
			defer warnings.Close()
			o := &options{streams: streams{err: warnings}}
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			cmd.Flags().StringVar(&o.config, "config", tt.path, "")
			if tt.named {
				if err := cmd.Flags().Set("config", tt.path); err != nil {
					t.Fatal(err)
				}
			}
			c, err := o.given(cmd)
			if c != nil || (err != nil) != tt.fails {
				t.Errorf("%v, %v", c, err)
			}
			told, err := os.ReadFile(warnings.Name())
			if err != nil || !strings.Contains(string(told), tt.warning) ||
				tt.warning == "" && len(told) > 0 {
				t.Errorf("the warning is %q, %v", told, err)
			}
		})
	}
}

// Every command that changes the machine writes a log, and none that only looks.
func TestWhoWritesALog(t *testing.T) {
	o := &options{output: "text"}
	root := newRoot(o)
	writes := map[string]bool{
		"agent": true, "bootstrap": true, "rollback": true, "unbootstrap": true, "plan": false,
		"drift": false, "status": false, "history": false, "diff": false, "token": false,
		"config": false, "version": false, "doctor": false, "endpoints": false, "support-bundle": false,
	}
	logs := func(cmd *cobra.Command) bool {
		t.Helper()
		if err := root.PersistentPreRunE(cmd, nil); err != nil {
			t.Fatal(err)
		}
		return o.changes
	}
	for _, cmd := range root.Commands() {
		want, known := writes[cmd.Name()]
		if is := logs(cmd); is != want || !known {
			t.Errorf("%s writes a log: %v", cmd.Name(), is)
		}
		if cmd.Name() == "drift" {
			if err := cmd.Flags().Set("repair", "true"); err != nil {
				t.Fatal(err)
			}
			if !logs(cmd) {
				t.Error("drift --repair writes none")
			}
		}
	}
}
