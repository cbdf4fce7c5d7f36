package stories

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// kernel is a kernel whose modules and swap are files below the root.
type kernel struct {
	root    string
	mu      sync.Mutex
	residue map[string]bool
	// tables counts the rules of the nftables tables that the agent has loaded.
	tables map[string]int
	// filters holds the chains of the owner's firewall.
	filters []host.Filter
	// filterErr is the error of reading them.
	filterErr error
	// unsynchronized is set if its clock is not synchronized.
	unsynchronized atomic.Bool
}

func (k *kernel) leave(keys ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		k.residue[key] = true
	}
}

func (k *kernel) show() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var keys []string
	for key := range k.residue {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for name, rules := range k.tables {
		keys = append(keys, fmt.Sprint(name, " ", rules))
	}
	slices.Sort(keys)
	for _, f := range k.filters {
		for _, r := range f.Rules {
			keys = append(keys, f.Name+":"+r.Comment)
		}
	}
	return strings.Join(keys, " ")
}

func (k *kernel) LoadModule(_ context.Context, name string) error {
	return os.MkdirAll(filepath.Join(k.root, "/sys/module", name), 0o755)
}

func (k *kernel) UnloadModule(name string) error {
	return os.Remove(filepath.Join(k.root, "/sys/module", name))
}

// SwapOff removes the line of an area.
func (k *kernel) SwapOff(_ context.Context, name string) error {
	file := filepath.Join(k.root, "/proc/swaps")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(line string) bool {
		return strings.HasPrefix(line, name+" ")
	})
	return os.WriteFile(file, []byte(strings.Join(lines, "")), 0o644)
}

// SwapOn adds the line of an area.
func (k *kernel) SwapOn(name string, priority int) error {
	err := k.SwapOff(context.Background(), name)
	if err != nil {
		return err
	}
	file := filepath.Join(k.root, "/proc/swaps")
	text, err := os.ReadFile(file)
	line := fmt.Sprintf("%s file 1 0 %d\n", name, priority)
	return errors.Join(err, os.WriteFile(file, append(text, line...), 0o644))
}

func (k *kernel) Find(_ context.Context, r state.Residue) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := string(r.Kind) + ":" + r.Match
	if k.residue[key] {
		return []string{key}, nil
	}
	return nil, nil
}

func (k *kernel) Clear(_ context.Context, _ state.Residue, found []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range found {
		delete(k.residue, key)
		delete(k.tables, key)
	}
	return nil
}
