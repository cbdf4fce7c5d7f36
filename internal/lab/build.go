package lab

import (
	"context"
	"time"

	"github.com/Azure/AKSFlexNode/internal/lab/component"
	"github.com/Azure/AKSFlexNode/internal/lab/mirror"
)

// programs are the directories of what was built, by component name, and by name and version.
type programs map[string]string

// ofSystem chooses what the lab itself runs. kubectl is a program of the nodes' component.
func ofSystem(c component.Component) bool {
	switch c.Name {
	case component.Etcd, component.KubernetesControlPlane, component.CoreDNS:
		return true
	case component.KubernetesNode:
		return c.Version == Newest.Kubernetes
	}
	return false
}

// needs chooses what a node of these versions is made of.
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

// Build builds what a node of these versions is made of, unless the cache has it. Up does not: it
// builds what the lab itself runs. Join and the like build what is missing when it is first used;
// who calls Build before has the builds behind him.
func (l *Lab) Build(ctx context.Context, v Versions) error {
	if err := needRoot(); err != nil {
		return err
	}
	_, err := l.build(ctx, v.needs)
	return err
}

// build builds the chosen components and the images, or finds them in the cache.
func (l *Lab) build(ctx context.Context, chosen func(component.Component) bool) (programs, error) {
	if err := l.installPackages(ctx); err != nil {
		return nil, err
	}
	all, err := component.All()
	if err != nil {
		return nil, err
	}
	images, err := imagesComponent()
	if err != nil {
		return nil, err
	}
	b := component.Builder{Cache: l.Cache, Log: l.Log, Progress: l.builds()}
	dirs := programs{}
	for _, c := range append(all, images) {
		if c.Name != images.Name && !chosen(c) {
			continue
		}
		dir, err := b.Build(ctx, c)
		if err != nil {
			return nil, err
		}
		dirs[c.Name], dirs[c.String()] = dir, dir
		if _, err := mirror.Pack(ctx, l.Cache, c, dir); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

// catalog is all that the mirror has: what has been built.
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

// artifacts are the files of which nodes of these versions are made, as the mirror has them. What
// was not built yet is built now.
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

// builds tells of builds: each phase, and every ten seconds how far it is.
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
