package service

import (
	"errors"
	"fmt"
)

// Program describes how the provider is run.
type Program struct {
	Version string
	Role    Role
	// Notify reports the state of the provider to the service manager, in the words of
	// sd_notify(3); nil reports nothing.
	Notify func(state string)
}

// Role names the work of a replica.
type Role string

const (
	// All does everything.
	All Role = "all"
	// Front answers callers and machines, and owns no cluster.
	Front Role = "front"
	// Controller works in the clusters that it owns. It answers only requests for health, metrics
	// and profiles.
	Controller Role = "controller"
)

// Check tells why a replica with these settings cannot have the role.
func (r Role) Check(s Settings) error {
	switch r {
	case All:
		return nil
	case Front, Controller:
		if s.Etcd == nil {
			return fmt.Errorf("cannot be a %s with a store of its own: fronts and controllers "+
				"share an etcd outside the process; set etcd in place of dataDir", r)
		}
		return nil
	}
	return errors.New("cannot use --role " + string(r) + ": it is front, controller or all")
}
