package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/health"
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
		{"the usual one, bad", bad, false, false, "ignoring the configuration"},
		{"the usual one, missing", bad + ".none", false, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			warnings, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
			if err != nil {
				t.Fatal(err)
			}
			defer warnings.Close()
			o := &options{err: warnings, config: tt.path, named: tt.named}
			c, err := o.given(t.Context())
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

// Drift that was not looked for is not reported as none.
func TestStatusOfDrift(t *testing.T) {
	for want, c := range map[string]health.Condition{
		"Drift       none\n": {Status: health.True},
		"Drift       unknown (driftPolicy off): this was not checked\n": {
			Status: health.Unknown, Message: "this was not checked"},
	} {
		var out strings.Builder
		c.Type = health.HostAsConfigured
		writeStatus(&out, inspect.Status{DriftPolicy: "off", Conditions: []health.Condition{c}})
		if !strings.HasSuffix(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
}

// Every command that changes the machine writes a log, and none that only looks.
func TestWhoWritesALog(t *testing.T) {
	o := &options{output: "text"}
	root := newRoot(o)
	writes := map[string]bool{
		"agent": true, "bootstrap": true, "rollback": true, "unbootstrap": true, "pause": true,
		"resume": true, "plan": false, "drift": false, "status": false, "history": false, "diff": false,
		"token": false, "image-credential": false,
		"config": false, "version": false, "doctor": false, "endpoints": false, "support-bundle": false,
		"policy": false, "follow": false,
	}
	logs := func(cmd *cobra.Command) bool {
		t.Helper()
		if err := root.PersistentPreRunE(cmd, nil); err != nil && os.Geteuid() == 0 {
			t.Fatal(err)
		}
		return o.changes
	}
	for _, cmd := range root.Commands() {
		want, known := writes[cmd.Name()]
		if is := logs(cmd); is != want || !known {
			t.Errorf("%s writes a log: %v", cmd.Name(), is)
		}
		for _, below := range cmd.Commands() {
			if is := logs(below); is != (below.Name() == "reset") {
				t.Errorf("%s writes a log: %v", below.CommandPath(), is)
			}
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

const validConfig = `{"azure": {"tenantId": "11111111-1111-1111-1111-111111111111",
	"servicePrincipal": {"clientId": "aaaaaaaa-0000-0000-0000-000000000001", "clientSecret": "x"},
	"targetCluster": {"location": "westeurope", "resourceId": "/subscriptions/` +
	`00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/` +
	`Microsoft.ContainerService/managedClusters/c"}}}`

// An interrupted command says that it goes on only where it has something to go on with, and a
// command that only looks does not exit as if it had found something.
func TestInterrupted(t *testing.T) {
	file := filepath.Join(trustedDir(t), "config.json")
	if err := os.WriteFile(file, []byte(validConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"doctor --only ConfigurationValid", "endpoints"} {
		told, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		code := run(ctx, strings.Fields(command+" --config "+file), told, told)
		text, err := os.ReadFile(told.Name())
		if err != nil || code != exitFailed || string(text) != "Error: interrupted\n" {
			t.Errorf("%s exits with %d: %s, %v", command, code, text, err)
		}
	}
	changing := &options{changes: true}
	if err := changing.interrupted(errors.New("x")); !strings.Contains(err.Error(), "to continue") {
		t.Errorf("what changes the machine says %v", err)
	}
}

// A person who is asked can say no by an interrupt.
func TestConfirmed(t *testing.T) {
	for typed, want := range map[string]bool{"y\n": true, "Yes\n": true, "\n": false, "": false} {
		err := confirmed(t.Context(), io.Discard, strings.NewReader(typed), "Go on?")
		if (err == nil) != want {
			t.Errorf("%q: %v", typed, err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	silent, _ := io.Pipe()
	if err := confirmed(ctx, io.Discard, silent, "Go on?"); !errors.Is(err, errNotConfirmed) {
		t.Errorf("an interrupt says %v", err)
	}
}

// trustedDir is a directory that only its user can change, up to the root: root may not use a
// configuration in /tmp.
func trustedDir(t *testing.T) string {
	if os.Geteuid() != 0 {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/run", "aks-flex-node-scripts-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
