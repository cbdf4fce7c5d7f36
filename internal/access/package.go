package access

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/state"
)

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
