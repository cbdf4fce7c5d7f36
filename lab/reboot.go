package lab

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Reboot runs `systemctl reboot` on a machine, as its owner would: logind waits for shutdown
// inhibitors first. nspawn exits when the machine reboots, so Reboot starts it again.
func (l *Lab) Reboot(ctx context.Context, m Machine) error {
	p, ok := l.running("machine-" + m.Name)
	if !ok {
		return fmt.Errorf("cannot reboot %s: it is off", m.Name)
	}
	if _, err := l.Output(ctx, m, "systemctl", "reboot"); err != nil {
		return err
	}
	if err := until(ctx, 2*time.Minute, m.Name+" to go down", func() error {
		if p.alive() {
			return errors.New("it runs")
		}
		return nil
	}); err != nil {
		return err
	}
	if err := removeCgroups("flexlab-" + m.Name); err != nil {
		return err
	}
	return l.StartMachine(ctx, m)
}
