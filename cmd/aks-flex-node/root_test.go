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
