package rp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// probe asks a cluster what nodes must be told of it, and writes down what is new.
func (s *Server) probe(ctx context.Context, key string) error {
	for range tries {
		row, err := s.Store.Clusters.Get(ctx, key)
		if err != nil || !row.Exists() {
			return err
		}
		facts, version, unreachable := s.look(ctx, row.Value)
		next := row.Value
		next.Properties.Reachable = unreachable == nil
		txn := s.Store.Txn()
		if unreachable == nil {
			next.Properties.KubernetesVersion = version
			next.Facts = factsID(facts)
			s.Store.Facts.Set(txn, next.Facts, facts)
		}
		if next.Facts == row.Value.Facts && next.Properties == row.Value.Properties {
			return unreachable
		}
		s.Store.Clusters.Put(txn, row, next)
		if _, err := s.commit(ctx, "cluster probed", txn); !errors.Is(err, store.ErrConflict) {
			return errors.Join(unreachable, err)
		}
	}
	return busy()
}

// look asks the cluster.
func (s *Server) look(ctx context.Context, c store.Cluster) (store.Facts, string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	target, err := s.Clusters.Target(ctx, c)
	if err != nil {
		return store.Facts{}, "", err
	}
	info, err := target.Discovery().ServerVersion()
	if err != nil {
		return store.Facts{}, "", fmt.Errorf("cannot ask the cluster for its version: %w", err)
	}
	dns := ""
	service, err := target.CoreV1().Services(metav1.NamespaceSystem).Get(ctx, "kube-dns", metav1.GetOptions{})
	switch {
	case err == nil:
		dns = service.Spec.ClusterIP
	case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return store.Facts{}, "", fmt.Errorf("cannot ask the cluster for its DNS service: %w", err)
	}
	id, err := arm.Parse(c.ID)
	if err != nil {
		return store.Facts{}, "", err
	}
	tenant, err := s.tenantOf(ctx, id.Subscription)
	if err != nil {
		return store.Facts{}, "", err
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(info.GitVersion, "v"), "+")
	return target.facts(c, dns, tenant), version, nil
}

// factsID names facts by their content.
func factsID(f store.Facts) string {
	text, err := json.Marshal(f)
	if err != nil {
		panic("internal error: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// settle brings a node up to date with its cluster: what could not be resolved when it was written, and facts that are new since. Both
// make another configuration, with another version.
func (s *Server) settle(ctx context.Context, cluster store.Row[store.Cluster], key string) error {
	node, err := s.Store.Nodes.Get(ctx, key)
	if err != nil || !node.Exists() {
		return err
	}
	next := node.Value
	if next.State == api.Deleting {
		_, _, err := s.remove(ctx, node)
		return err
	}
	if cluster.Value.Facts == "" || next.Resolved.Facts == cluster.Value.Facts {
		return nil
	}
	if next.Resolved.Facts == "" {
		versions, problems := resolveVersions(next.Desired.Versions, cluster.Value.Properties.KubernetesVersion)
		if len(problems) > 0 {
			next.State = api.Failed
			return s.fail(ctx, node, next, problems)
		}
		next.Resolved.Versions = versions
		if next.Credential == "" {
			next.State = ""
		}
	}
	next.Resolved.Facts = cluster.Value.Facts
	next.Version = s.nextVersion(next.Version)
	txn := s.Store.Txn()
	s.Store.Nodes.Put(txn, node, next)
	_, err = s.commit(ctx, "node settled", txn)
	return err
}

// fail writes down why a node cannot be as it is wanted.
func (s *Server) fail(ctx context.Context, node store.Row[store.Node], next store.Node, problems []problem) error {
	if node.Value.State == api.Failed {
		return nil
	}
	txn := s.Store.Txn()
	s.Store.Nodes.Put(txn, node, next)
	if _, err := s.commit(ctx, "node failed", txn); err != nil {
		return err
	}
	node, err := s.Store.Nodes.Get(ctx, node.Key)
	if err != nil {
		return err
	}
	return s.changeStatus(ctx, node, func(st *store.Status) bool {
		st.Report.Conditions = append(st.Report.Conditions, api.Condition{Type: "Resolved", Status: "False", Reason: "VersionSkew", Message: problems[0].message, LastTransitionTime: s.Now().UTC()})
		return true
	})
}
