package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/Azure/AKSFlexNode/internal/state"
)

func (h *Host) observeOpening(ctx context.Context, key state.Key) (state.Resource, error) {
	firewall, text := key.Opening()
	b, err := h.backend(firewall)
	if err != nil {
		return nil, err
	}
	open, drops, err := b.observe(ctx, parseRule(text))
	if err != nil {
		return nil, fmt.Errorf("cannot observe firewall %s: %w", firewall, err)
	}
	off := !open && !drops
	return state.Opening{Firewall: firewall, Rule: text, Open: open, Off: off}, nil
}

// setOpening adds or removes a rule by the firewall's own program; only one of ours is removed.
func (h *Host) setOpening(ctx context.Context, to state.Opening) error {
	b, err := h.backend(to.Firewall)
	if err != nil {
		return err
	}
	is, err := h.observeOpening(ctx, to.Key())
	if err != nil || state.Equal(is, to) {
		return err
	}
	r := parseRule(to.Rule)
	commands := b.opening(r)
	if !to.Open {
		if commands, err = b.closing(r); err != nil {
			return err
		}
	}
	for _, argv := range commands {
		_, err := h.Run(ctx, toolLimit, nil, argv...)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; the firewall is changed with this program: install it", err)
		}
		if err != nil {
			return fmt.Errorf("cannot change firewall %s: %w", to.Firewall, err)
		}
	}
	return nil
}
