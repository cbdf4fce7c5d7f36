package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

func (linux) findInterface(_ context.Context, name string) ([]string, error) {
	_, err := netlink.LinkByName(name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find interface %s: %w", name, err)
	}
	return []string{name}, nil
}

func (linux) clearInterfaces(_ context.Context, _ string, names []string) error {
	var errs []error
	for _, name := range names {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
