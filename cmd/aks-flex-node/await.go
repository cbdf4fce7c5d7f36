package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// formerFile is set in the environment of a service that waits for another configuration: the stamp
// of the file that was there when the machine was given back, which is no new one.
const formerFile = "AKS_FLEX_NODE_FORMER_FILE"

// waitPause is how often the service sees whether there is a configuration.
const waitPause = 5 * time.Second

// awaitConfiguration has a service without any configuration wait for one: that the provider
// delivers (`agent --config-url`), or a file in the usual place. One that was ended while it gave
// the machine back does not wait: that is to be finished.
func (o *options) awaitConfiguration(ctx context.Context) error {
	if os.Getenv("AKS_FLEX_NODE_SERVICE") == "" || o.config != defaultConfig {
		return nil
	}
	told := false
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
		message := sd.SdNotifyWatchdog
		if !told {
			const status = "waiting for a configuration: aks-flex-node agent --config-url URL, or "
			fmt.Fprintf(o.err, "%s%s\n", status, defaultConfig)
			message, told = sd.SdNotifyReady+"\nSTATUS="+status+defaultConfig, true
		}
		if _, err := sd.SdNotify(false, message); err != nil {
			return fmt.Errorf("cannot notify systemd: %w", err)
		}
		if !wait.Sleep(ctx, waitPause) {
			return nil
		}
	}
}

// leaving reports whether this machine is being given back.
func leaving() bool {
	data, err := os.ReadFile(saved.StateDir + "/" + saved.TransitionFile)
	var t transition.Transition
	return err == nil && json.Unmarshal(data, &t) == nil && t.Kind == transition.Leave
}

// beginAgain is what follows when the machine was given back for its owner: a service becomes a new
// process, which waits for another configuration; anything else has nothing more to do.
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
