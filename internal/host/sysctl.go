package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// sysctlPath is the file of a kernel parameter. In names, dots separate; an interface's own dots
// are written as slashes (sysctl(8)).
func sysctlPath(name string) string {
	return "/proc/sys/" + strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

func (h *Host) observeSysctl(name string) (state.Resource, error) {
	data, err := h.ReadFile(sysctlPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return state.Sysctl{Name: name}, nil // its module is not loaded yet
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return state.Sysctl{Name: name, Value: strings.Join(strings.Fields(string(data)), " ")}, nil
}

// setSysctl sets a kernel parameter. One that was not there before has gone with its module.
func (h *Host) setSysctl(to state.Sysctl) error {
	if to.Value == "" {
		return nil
	}
	done, err := h.touch("set %s", to.Name)
	if err != nil {
		return err
	}
	defer done()
	f, err := os.OpenFile(h.path(sysctlPath(to.Name)), os.O_WRONLY|os.O_TRUNC, 0)
	if err == nil {
		_, err = f.WriteString(to.Value)
		err = errors.Join(err, f.Close())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cannot set %s: this kernel does not have it; is its module missing?", to.Name)
	case err != nil:
		return fmt.Errorf("cannot set %s to %s: %w", to.Name, to.Value, unwrapPath(err))
	}
	return nil
}
