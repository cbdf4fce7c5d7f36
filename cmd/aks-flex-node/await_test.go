package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
)

// A service that met a file with problems goes on when the file is fixed (E26).
func TestServiceWaitsForAValidFile(t *testing.T) {
	t.Setenv("AKS_FLEX_NODE_SERVICE", "1")
	file := filepath.Join(trustedDir(t), "config.json")
	write := func(text string) {
		err := os.WriteFile(file+".new", []byte(text), 0o600)
		if err = errors.Join(err, os.Rename(file+".new", file)); err != nil { // never half written
			t.Fatal(err)
		}
	}
	write(`{"azure": {}}`)
	synctest.Test(t, func(t *testing.T) {
		told := &strings.Builder{}
		o := &options{config: file, out: io.Discard, err: told}
		ended := make(chan error, 1)
		go func() {
			_, err := o.firstInput(t.Context(), nil)
			ended <- err
		}()
		time.Sleep(10 * waitPause)
		select {
		case err := <-ended:
			t.Fatalf("it does not wait: %v", err)
		default:
		}
		write(validConfig)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := strings.Count(told.String(), "waiting for a change of "+file); n != 1 {
			t.Errorf("it says %d times what it waits for:\n%s", n, told)
		}
	})
}

// A service starts although the machine's leave has removed its configuration, and finishes that.
func TestLeftWithoutConfiguration(t *testing.T) {
	o := &options{config: saved.BundleFile, out: io.Discard, err: io.Discard}
	in, err := o.firstInput(t.Context(), nil)
	if err != nil || in.Config.Agent.LogDir == "" {
		t.Errorf("the input is %+v, error %v", in, err)
	}
}
