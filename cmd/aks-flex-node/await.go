package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/untrusted"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// formerFile is set in the environment of a service that waits for another configuration: the stamp
// of the file that was there when the machine was given back, which is no new one.
const formerFile = "AKS_FLEX_NODE_FORMER_FILE"

// waitPause is the interval at which the service looks for a configuration.
const waitPause = 5 * time.Second

// awaitConfiguration has a service without any configuration wait for one: that the provider
// delivers (`agent --config-url`), or a file in the usual place. One that was ended while it gave
// the machine back does not wait: that is to be finished.
func (o *options) awaitConfiguration(ctx context.Context) error {
	if os.Getenv("AKS_FLEX_NODE_SERVICE") == "" || o.config != defaultConfig {
		return nil
	}
	idle := o.idle(ctx)
	for {
		if delivered() {
			o.config = saved.BundleFile
			return nil
		}
		file := fmt.Sprint(fileStamp(o.config))
		if file != fmt.Sprint(fileStamp("")) && file != os.Getenv(formerFile) {
			return nil
		}
		if leaving() {
			o.config = saved.BundleFile // which the leave has removed
			return nil
		}
		if !idle("waiting for a configuration: aks-flex-node agent --config-url-file FILE, or " +
			defaultConfig) {
			return nil
		}
	}
}

// readValid reads the configuration of the agent. A service of a machine that is not a node yet waits
// until a file with problems is changed.
func (o *options) readValid(ctx context.Context, before *config.Config) (config.Loaded, error) {
	idle := o.idle(ctx)
	for {
		stamp := fileStamp(o.config)
		read, err := o.read(before)
		_, invalid := errors.AsType[config.Problems](err)
		if !invalid || before != nil || os.Getenv("AKS_FLEX_NODE_SERVICE") == "" {
			return read, err
		}
		for fileStamp(o.config) == stamp {
			if !idle("waiting for a change of " + o.config + ", which cannot be used: " + err.Error()) {
				return read, err
			}
		}
	}
}

// idle is a pause of a service that waits for something, which systemd and the journal show.
// It reports whether to go on.
func (o *options) idle(ctx context.Context) func(what string) bool {
	told := ""
	return func(what string) bool {
		message := sd.SdNotifyWatchdog
		if what != told {
			told = what
			fmt.Fprintln(o.err, what)
			status, _, _ := strings.Cut(what, "\n")
			message = sd.SdNotifyReady + "\nSTATUS=" + untrusted.Text(status).String()
		}
		if _, err := sd.SdNotify(false, message); err != nil {
			fmt.Fprintf(o.err, "warning: cannot notify systemd: %v\n", err)
		}
		return wait.Sleep(ctx, waitPause)
	}
}

// leaving reports whether this machine is being given back.
func leaving() bool {
	data, err := os.ReadFile(saved.StateDir + "/" + saved.TransitionFile)
	var t transition.Transition
	return err == nil && json.Unmarshal(data, &t) == nil && t.Kind == transition.Leave
}

// beginAgain runs when the machine was given back for its owner. A service becomes a new process,
// which waits for another configuration; any other command has nothing more to do.
func (o *options) beginAgain(done func()) error {
	fmt.Fprintln(o.err, "the configuration of this node was deleted, and the machine given back")
	if os.Getenv("AKS_FLEX_NODE_SERVICE") == "" {
		return nil
	}
	done()
	if err := os.Setenv(formerFile, fmt.Sprint(fileStamp(defaultConfig))); err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return replaceProcess(os.Args, os.Environ())
}
