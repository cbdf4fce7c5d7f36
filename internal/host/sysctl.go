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
	return "/proc/sys/" + strings.NewReplacer(".", "/", "/", ".").Replace(name)
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
	return h.change("set "+to.Name+" to "+to.Value, func() error {
		f, err := os.OpenFile(h.path(sysctlPath(to.Name)), os.O_WRONLY|os.O_TRUNC, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New("this kernel does not have it; is its module missing?")
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(to.Value)
		return errors.Join(err, f.Close())
	})
}
