package component

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOnceClearsWhatAKilledProcessLeft(t *testing.T) {
	cache := t.TempDir()
	work := filepath.Join(cache, ".work-thing")
	if err := os.MkdirAll(filepath.Join(work, "half"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := Once(t.Context(), filepath.Join(cache, "thing"), unexpected(t), func(work string) error {
		return os.WriteFile(filepath.Join(work, "whole"), nil, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"whole"}, list(t, filepath.Join(cache, "thing"))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{".thing.lock", "thing"}, list(t, cache)); diff != "" {
		t.Error(diff)
	}
}

func TestOnceLeavesNothingAfterAnError(t *testing.T) {
	cache := t.TempDir()
	broken := errors.New("broken")
	err := Once(t.Context(), filepath.Join(cache, "thing"), unexpected(t), func(work string) error {
		return errors.Join(os.WriteFile(filepath.Join(work, "half"), nil, 0o644), broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("error is %v", err)
	}
	if diff := cmp.Diff([]string{".thing.lock"}, list(t, cache)); diff != "" {
		t.Error(diff)
	}
}

// TestOnceFillsOnce blocks the first builder until the second one waits.
func TestOnceFillsOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "thing")
	var fills atomic.Int32
	filling, waits, first := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		first <- Once(context.Background(), dir, func() {}, func(string) error {
			fills.Add(1)
			close(filling)
			<-waits
			return nil
		})
	}()
	<-filling
	err := Once(t.Context(), dir, func() { close(waits) }, func(string) error {
		fills.Add(1)
		return nil
	})
	if err := errors.Join(err, <-first); err != nil {
		t.Fatal(err)
	}
	if n := fills.Load(); n != 1 {
		t.Errorf("filled %d times", n)
	}
}

func TestOnceStopsWaiting(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "thing")
	filling, release, first := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		first <- Once(context.Background(), dir, func() {}, func(string) error {
			close(filling)
			<-release
			return nil
		})
	}()
	<-filling
	ctx, cancel := context.WithCancel(t.Context())
	err := Once(ctx, dir, cancel, func(string) error { return errors.New("filled twice") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func unexpected(t *testing.T) func() {
	return func() { t.Error("waits, with nothing to wait for") }
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
