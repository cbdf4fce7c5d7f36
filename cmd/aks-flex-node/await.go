package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/Azure/AKSFlexNode/internal/agent"
)

// waitPause is how often the service sees whether there is a configuration.
const waitPause = 5 * time.Second

// awaitConfiguration has a service without any configuration wait for one: that the provider
// delivers (`agent --config-url`), or a file in the usual place.
func (o *options) awaitConfiguration(ctx context.Context) error {
	if os.Getenv("AKS_FLEX_NODE_SERVICE") == "" || o.config != defaultConfig {
		return nil
	}
	told := false
	for {
		if delivered() {
			o.config = agent.BundleFile
			return nil
		}
		if _, err := os.Stat(o.config); !os.IsNotExist(err) {
			return nil
		}
		message := sd.SdNotifyWatchdog
		if !told {
			const status = "waiting for a configuration: aks-flex-node agent --config-url URL, or "
			fmt.Fprintf(o.err, "%s%s\n", status, defaultConfig)
			message, told = sd.SdNotifyReady+"\nSTATUS="+status+defaultConfig, true
		}
		if _, err := sd.SdNotify(false, message); err != nil {
			return fmt.Errorf("cannot notify systemd: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(waitPause):
		}
	}
}

// beginAgain is what follows when the machine was given back for its owner: a service becomes a new
// process, which waits for another configuration; anything else has nothing more to do.
func (o *options) beginAgain(why error, done func()) error {
	fmt.Fprintf(o.err, "%v\n", why)
	if os.Getenv("AKS_FLEX_NODE_SERVICE") == "" {
		return nil
	}
	done()
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot tell where aks-flex-node is: %w", err)
	}
	err = syscall.Exec(program, os.Args, os.Environ())
	return fmt.Errorf("cannot run %s: %w", program, err)
}
