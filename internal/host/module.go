package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

func (h *Host) observeModule(name string) (state.Resource, error) {
	_, err := os.Stat(h.path("/sys/module/" + name))
	if err == nil || h.builtin(name) {
		return state.Module{Name: name, Loaded: true}, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return state.Module{Name: name}, nil
	}
	return nil, fmt.Errorf("cannot find module %s: %w", name, err)
}

// builtin reports whether a module that /sys/module lacks, having no parameters, is in the kernel.
func (h *Host) builtin(name string) bool {
	switch name {
	case "overlay":
		data, _ := h.ReadFile("/proc/filesystems") // what cannot be read is not there
		return strings.Contains(string(data), "\toverlay\n")
	case "br_netfilter":
		return h.exists(sysctlPath("net.bridge.bridge-nf-call-iptables"))
	}
	return false
}

func (h *Host) setModule(ctx context.Context, to state.Module) error {
	if to.Loaded {
		return h.change("load module "+to.Name, func() error {
			return h.Kernel.LoadModule(ctx, to.Name)
		})
	}
	return h.change("unload module "+to.Name, func() error {
		err := h.Kernel.UnloadModule(to.Name)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EBUSY) {
			h.Log.Info("module left loaded: others use it now", "module", to.Name)
			return nil
		}
		return except(err, unix.ENOENT)
	})
}

func (l linux) LoadModule(ctx context.Context, name string) error {
	_, err := l.run(ctx, "", "modprobe", "--", name)
	return err
}

func (linux) UnloadModule(name string) error { return unix.DeleteModule(name, unix.O_NONBLOCK) }
