package change

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
)

// keys are the machine's key and what registers it, on disk.
type keys struct{ *Agent }

// MachineKeys returns where the key of the machine is kept.
func MachineKeys(a *Agent) follow.Keys { return keys{a} }

// MachineKey implements follow.Keys. The directory is there: a bundle, or what the node runs on, is
// in it.
func (k keys) MachineKey(ctx context.Context) (*machinekey.Key, error) {
	k.Bundle.Lock()
	defer k.Bundle.Unlock()
	return saved.NewWriter(k.Machine).MakeMachineKey(ctx)
}

// EnrolmentSecret implements follow.Keys.
func (k keys) EnrolmentSecret() (string, error) { return k.Records().EnrolmentSecret() }
