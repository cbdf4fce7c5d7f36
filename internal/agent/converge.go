package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// goal is the node that a run works towards. Its facts become complete on the way.
type goal struct {
	config    config.Config
	facts     node.Facts
	artifacts []artifact.Artifact
	// applied is the generation that was healthy before; nil on a machine that never was a node.
	applied *Generation
}

// converge brings the node about. Downloads run beside it from the first moment; each change waits only for its own bytes.
// What a node does not need to be Ready is fetched once it is: until then neither bandwidth nor processor is spent on it. A node
// that has pods on it is not touched before all bytes are there.
func (s *session) converge(ctx context.Context, g *goal, view *steps) (changes int, err error) {
	first := g.artifacts
	if !g.facts.Joined {
		first = slices.DeleteFunc(slices.Clone(first), func(a artifact.Artifact) bool { return a.Late })
	}
	fetch := s.startFetch(ctx, g, first)
	defer fetch.end()
	s.engine.Emit, s.engine.Wait = view.emit, fetch.wait
	if g.facts.Joined {
		if err := fetch.all(ctx); err != nil {
			return 0, err
		}
	}
	defer func() { changes = view.total }()
	if err := s.enrol(ctx, g, view); err != nil {
		return 0, err
	}
	if err := s.bring(ctx, g); err != nil {
		return 0, err
	}
	view.stay()
	join, cancel := context.WithTimeoutCause(ctx, g.config.ReadyTimeout(), errNotReady)
	defer cancel()
	if err := s.join(join, g, view); err != nil {
		view.fail()
		return 0, s.explain(ctx, g, err)
	}
	if !g.facts.Joined {
		g.facts.Joined = true
		late := s.startFetch(ctx, g, g.artifacts)
		defer late.end()
		s.engine.Wait = late.wait
		if err := s.bring(ctx, g); err != nil {
			return 0, err
		}
	}
	view.done("Node " + g.config.Agent.NodeName + " is Ready")
	return 0, nil
}

// bring applies the node as far as its facts are known.
func (s *session) bring(ctx context.Context, g *goal) error {
	plan, err := s.engine.Plan(ctx, node.Render(g.config, g.facts))
	if err != nil {
		return err
	}
	return s.engine.Apply(ctx, plan)
}

// errNotReady is why the wait for the Node ended.
var errNotReady = errors.New("the Node did not become Ready in time")

// join waits until kubelet has joined: its credential, the Node's pod subnet, the Node Ready and labelled.
func (s *session) join(ctx context.Context, g *goal, view *steps) error {
	if !g.config.Azure.ShowsToken() {
		view.doing("waiting for kubelet to get its certificate")
		if err := s.waitCredential(ctx, g); err != nil {
			return err
		}
	}
	cluster, err := s.kubelet(g.config)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if g.facts.PodCIDR == "" && len(g.facts.ForeignCNI) == 0 {
		view.doing("waiting for the cluster to allocate a pod subnet")
		n, err := cluster.WaitNode(ctx, g.config.Agent.NodeName, allocated)
		if err != nil {
			return err
		}
		g.facts.PodCIDR = n.Spec.PodCIDR
		if err := s.bring(ctx, g); err != nil {
			return err
		}
	}
	view.doing("waiting for the Node to be Ready")
	if _, err := cluster.WaitNode(ctx, g.config.Agent.NodeName, readySince(view.kubelet)); err != nil {
		return err
	}
	return s.label(ctx, cluster, g)
}

// fetch is the download of a goal's artifacts, under way.
type fetch struct {
	fetcher   *artifact.Fetcher
	artifacts []artifact.Artifact
	stop      context.CancelFunc
	ended     chan error
}

// startFetch begins to download what the store does not have.
func (s *session) startFetch(ctx context.Context, g *goal, artifacts []artifact.Artifact) *fetch {
	ctx, stop := context.WithCancel(ctx)
	f := &fetch{fetcher: s.fetcher(g.config), artifacts: artifacts, stop: stop, ended: make(chan error, 1)}
	go func() { f.ended <- f.fetcher.Run(ctx, artifacts) }()
	return f
}

// end stops what is still being downloaded and returns when it has stopped.
func (f *fetch) end() {
	f.stop()
	<-f.ended
}

// wait blocks until the artifact that a link points into is in the store.
func (f *fetch) wait(ctx context.Context, to state.Resource) error {
	link, ok := to.(state.Link)
	if !ok {
		return nil
	}
	for _, a := range f.artifacts {
		if strings.HasPrefix(link.Target, node.StoreDir+"/"+a.ID+"/") {
			return f.fetcher.Wait(ctx, a.ID)
		}
	}
	return nil
}

// all blocks until every artifact is in the store.
func (f *fetch) all(ctx context.Context) error {
	for _, a := range f.artifacts {
		if err := f.fetcher.Wait(ctx, a.ID); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) fetcher(c config.Config) *artifact.Fetcher {
	return &artifact.Fetcher{
		Store:  s.path(node.StoreDir),
		Source: artifact.NewSource(c.Artifacts, s.Client(proxy(c))),
		Log:    s.Log,
		Events: s.downloads,
	}
}

// downloads translates download events into progress.
func (s *session) downloads(e artifact.Event) {
	name := e.Artifact.String()
	switch e.Kind {
	case artifact.Progress:
		s.show(progress.Event{Kind: progress.Bytes, Name: name, Done: e.Bytes, Total: e.Total})
	case artifact.Retrying:
		s.show(progress.Event{Kind: progress.Retry, Name: name, Text: fmt.Sprintf("%v; trying on", e.Err)})
	case artifact.Done:
		if !e.Cached {
			s.show(progress.Event{Kind: progress.Fetched, Name: name, Total: e.Artifact.Size, Took: e.Took})
		}
	}
}
