package saved

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/policy"
)

// Policy limits what a provider may do with a machine.
type Policy = policy.Policy

// PolicyFile is the file with the policy, which the agent never writes.
const PolicyFile = policy.File

// ReadPolicy reads the policy; trusted says whether only root can change the file at path.
func ReadPolicy(files apply.Files, path string, trusted func(path string) error) (Policy, error) {
	// Asked before the file is opened: if only root can change it now, only root can until then.
	untrusted := trusted(path)
	data, err := files.ReadFile(PolicyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Policy{}, nil
	}
	var p Policy
	if err = errors.Join(untrusted, err); err == nil {
		p, err = policy.Parse(data)
	}
	if err != nil {
		return Policy{}, fmt.Errorf("cannot use the policy %s:\n%w", PolicyFile, err)
	}
	return p, nil
}

// PauseFile is the pause of a machine, below StateDir.
const PauseFile = "pause.json"

// Pause is a time in which the agent begins no change and no repair by itself.
type Pause struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
}

// Pause returns the pause at a time; nil for none.
func (r Records) Pause(now time.Time) (*Pause, error) {
	var p Pause
	found, err := r.Load(PauseFile, &p)
	if err != nil || !found || !now.Before(p.Until) {
		return nil, err
	}
	return &p, nil
}
