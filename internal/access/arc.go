package access

import (
	"context"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// RecordFile is the record of an enrolment with Azure Arc.
const RecordFile = "arc.json"

// Records holds the memory of the machine.
type Records interface {
	Load(name string, v any) (bool, error)
}

// Record reads what was recorded of the enrolment with Arc; zero where nothing was.
func Record(r Records) (record arc.Record, err error) {
	_, err = r.Load(RecordFile, &record)
	return record, err
}

// Standing returns the status of the Arc agent, compared with the record.
func Standing(
	ctx context.Context, m Machine, r Records, c config.Config,
) (health.Arc, error) {
	record, err := Record(r)
	if err != nil {
		return health.Arc{}, err
	}
	s, err := agent(m, c).Status(ctx)
	if err != nil {
		return health.Arc{}, err
	}
	a := health.Arc{Machine: s.MachineID(), Recorded: record.MachineID, Agent: string(s.Agent)}
	switch s.Agent {
	case arc.Connected:
	case arc.Expired:
		a.Refused = true
	default:
		_, err := Fresh(ctx, c)
		a.Refused = identity.Refused(err)
	}
	a.Lost = s.MachineID() == "" || a.Refused || !strings.EqualFold(s.MachineID(), record.MachineID)
	return a, nil
}

// MachineID is the ARM id of the Arc machine that this one is; "" for none, or if not accepted.
func MachineID(ctx context.Context, m Machine, c config.Config) string {
	if c.Azure.AuthMode() != config.AuthArc {
		return ""
	}
	s, err := agent(m, c).Status(ctx)
	if err != nil || s.Agent == arc.Expired {
		return ""
	}
	return s.MachineID()
}

// agent returns the Arc agent of this machine, to be asked.
func agent(m Machine, c config.Config) arc.Arc {
	return arc.Arc{
		Config: c.Azure, Machine: m, Options: identity.ARM(c.Azure, c.ProxyFunc()),
		Proxy: c.Proxy.HTTPS, Warn: m.Warn,
	}
}

// PackageDir is where the Arc agent's package is downloaded to and installed from.
const PackageDir = config.StateDir + "/packages"

// Package downloads the Arc agent's package into PackageDir. doing shows what goes on.
func (a *Azure) Package(seen host.Facts, doing func(string)) arc.Download {
	return arc.Download{
		Machine: a.Node, Arch: seen.Arch, ID: seen.OSID, Version: seen.OSVersion,
		Dir: PackageDir, Path: a.Node.Path(PackageDir), Doing: doing, Trusted: a.Node.TrustedFile,
		Clear: func(ctx context.Context) error { return a.Store.RemoveTree(ctx, PackageDir) },
		Make: func(ctx context.Context, to state.Resource) error {
			return a.Store.Disk.Set(ctx, state.Change{To: to}, nil)
		},
	}
}
