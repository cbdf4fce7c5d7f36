package lab

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/Azure/AKSFlexNode/lab/component"
	"github.com/Azure/AKSFlexNode/lab/mirror"
)

// programs maps components to build directories, by name and by name and version.
type programs map[string]string

// ofSystem reports whether the lab itself runs a component. kubectl is part of the nodes'
// component.
func ofSystem(c component.Component) bool {
	switch c.Name {
	case component.Etcd, component.KubernetesControlPlane, component.CoreDNS:
		return true
	case component.KubernetesNode:
		return c.Version == Newest.Kubernetes
	}
	return false
}

// needs reports whether nodes of these versions need a component.
func (v Versions) needs(c component.Component) bool {
	switch c.Name {
	case component.KubernetesNode:
		return c.Version == v.Kubernetes
	case component.Containerd:
		return c.Version == v.Containerd
	case component.Runc, component.CNIPlugins, component.NodeProblemDetector:
		return true
	}
	return false
}

// Build builds what the lab runs, the components of nodes of these versions and the system of their
// machines, as far as they are not in the cache. Up builds only the lab's part; Join and similar
// functions build missing parts on first use, unless Build was called before.
func (l *Lab) Build(ctx context.Context, versions ...Versions) error {
	if err := needRoot(); err != nil {
		return err
	}
	if err := l.installPackages(ctx); err != nil {
		return err
	}
	made, ctx := errgroup.WithContext(ctx)
	made.Go(func() error {
		_, err := l.build(ctx, func(c component.Component) bool {
			return ofSystem(c) ||
				slices.ContainsFunc(versions, func(v Versions) bool { return v.needs(c) })
		})
		return err
	})
	made.Go(func() error {
		_, machine := l.baseSystem(ctx, nil)
		_, proxy := l.proxyTools(ctx)
		return errors.Join(machine, proxy)
	})
	return made.Wait()
}

// Component builds a component of which the lab has one version, unless it is in the cache, and
// returns its directory.
func (l *Lab) Component(ctx context.Context, name string) (string, error) {
	dirs, err := l.build(ctx, func(c component.Component) bool { return c.Name == name })
	return dirs[name], err
}

// build builds the chosen components and the images, as far as they are not in the cache.
func (l *Lab) build(ctx context.Context, chosen func(component.Component) bool) (programs, error) {
	if err := l.installPackages(ctx); err != nil {
		return nil, err
	}
	list, err := component.All()
	if err != nil {
		return nil, err
	}
	images, err := imagesComponent()
	if err != nil {
		return nil, err
	}
	list = append(slices.DeleteFunc(list, func(c component.Component) bool { return !chosen(c) }),
		images)
	return buildAll(ctx, component.Builder{Cache: l.Cache, Log: l.Log, Progress: l.builds()}, list)
}

// buildAll builds components. While one compiles, the modules of the next ones are downloaded and
// previous ones packed. The first error stops everything.
func buildAll(
	ctx context.Context, b component.Builder, list []component.Component,
) (programs, error) {
	all, ctx := errgroup.WithContext(ctx)
	dirs := programs{}
	all.Go(func() error { return b.Download(ctx, list) })
	all.Go(func() error {
		for _, c := range list {
			dir, err := b.Build(ctx, c)
			if err != nil {
				return err
			}
			dirs[c.Name], dirs[c.String()] = dir, dir
			all.Go(func() error {
				_, err := mirror.Pack(ctx, b.Cache, c, dir)
				return err
			})
		}
		return nil
	})
	return dirs, all.Wait()
}

// catalog returns everything that the mirror serves: the components built so far.
func (l *Lab) catalog(ctx context.Context) (mirror.Catalog, error) {
	all, err := component.All()
	if err != nil {
		return mirror.Catalog{}, err
	}
	b := component.Builder{Cache: l.Cache, Log: l.Log}
	var parts []mirror.Catalog
	for _, c := range all {
		dir, err := b.Find(ctx, c)
		if err != nil {
			return mirror.Catalog{}, err
		}
		if dir == "" {
			continue
		}
		part, err := mirror.Pack(ctx, l.Cache, c, dir)
		if err != nil {
			return mirror.Catalog{}, err
		}
		parts = append(parts, part)
	}
	return mirror.Merge(parts...), nil
}

// artifacts returns the files that nodes of these versions consist of, and builds those that are
// missing.
func (l *Lab) artifacts(ctx context.Context, v Versions) (mirror.Catalog, error) {
	list, err := l.Mirror().Artifacts(ctx)
	if err != nil || (mirror.Catalog{Artifacts: list}).Has(v.artifacts()) {
		return mirror.Catalog{Artifacts: list}, err
	}
	if err := l.Build(ctx, v); err != nil {
		return mirror.Catalog{}, err
	}
	if err := l.Mirror().Reload(ctx); err != nil {
		return mirror.Catalog{}, err
	}
	list, err = l.Mirror().Artifacts(ctx)
	return mirror.Catalog{Artifacts: list}, err
}

// builds returns a function that reports builds: each phase, and the progress every ten seconds.
func (l *Lab) builds() func(component.Event) {
	var last component.Event
	var when time.Time
	return func(e component.Event) {
		same := e.Phase == last.Phase && e.Component.String() == last.Component.String()
		if e.Phase == component.Cached || same && time.Since(when) < 10*time.Second {
			return
		}
		last, when = e, time.Now()
		l.Say("%s", e)
	}
}
