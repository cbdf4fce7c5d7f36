package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func (linux) findMounts(_ context.Context, prefix string) ([]string, error) {
	list, err := mounts()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, m := range list {
		if strings.HasPrefix(m.Point, prefix) {
			found = append(found, m.Point)
		}
	}
	matches, err := filepath.Glob(prefix + "*")
	return append(found, matches...), err
}

// clearMounts unmounts what is mounted at the given places and removes the empty files that they
// were mounted on. A network namespace in which somebody lives is not ours.
func (linux) clearMounts(_ context.Context, _ string, points []string) error {
	var errs []error
	lived, err := inhabited()
	if err != nil {
		return err
	}
	for _, point := range slices.Backward(slices.Sorted(slices.Values(points))) {
		var st unix.Stat_t
		if unix.Lstat(point, &st) == nil && lived[st.Ino] {
			continue
		}
		if err := detach(point); err != nil {
			errs = append(errs, fmt.Errorf("cannot unmount %s: %w", point, err))
			continue
		}
		if info, err := os.Lstat(point); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			errs = append(errs, os.Remove(point))
		}
	}
	return errors.Join(errs...)
}
