package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

var noTime time.Time

// noteFailure records that the cluster does not answer. After a while the row of the cluster says
// so, which makes all its Nodes Unknown without a write for each.
func (w *worker) noteFailure(ctx context.Context, cause error) {
	if ctx.Err() != nil { // it is not about the cluster
		return
	}
	now := time.Now()
	w.mu.Lock()
	first := w.failing.IsZero()
	if first {
		w.failing = now
	}
	lasts := now.Sub(w.failing)
	w.mu.Unlock()
	if first {
		w.log.Warn("the cluster does not answer", slog.Any("error", cause))
	}
	harm := errors.Is(cause, errHarm) // it does answer
	if lasts >= unreachableAfter && !harm && !errors.Is(cause, ErrNotBound) {
		w.Membership.Report(w.key, false)
	}
	row, err := w.Index.Cluster(w.key)
	if err != nil || !row.Exists() || !w.owner.Valid() {
		return
	}
	known := row.Value.Probe.Unreachable
	if row.Value.Properties.Reachable && lasts < unreachableAfter && !harm ||
		!row.Value.Properties.Reachable && known != "" && (!isGone(cause) || known == notInAzure) {
		return
	}
	err = w.editCluster(ctx, "cluster unreachable", func(c *flexnode.Cluster) bool {
		if c.Properties.Reachable || c.Probe.Unreachable == "" {
			c.Properties.Reachable, c.Probe.Since = false, time.Now().UTC()
		}
		c.Probe.Unreachable = unreachable(cause)
		return true
	})
	if err != nil && ctx.Err() == nil {
		w.log.Warn("cannot write that the cluster does not answer", slog.Any("error", err))
	}
}

func (w *worker) answered() {
	w.mu.Lock()
	w.failing = noTime
	w.mu.Unlock()
	w.Membership.Report(w.key, true)
}

// Try returns the reason that this replica does not reach a cluster which another one owns
// (store.Membership.Try).
func (m *Manager) Try(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	row, err := m.Index.Cluster(key)
	if err != nil {
		return err
	}
	connection, err := m.connect(ctx, row.Value)
	if err == nil {
		_, err = connection.version(ctx)
	}
	return err
}

// notInAzure is the message for a cluster that was deleted or moved in Azure.
const notInAzure = "Resource Manager has no managed cluster of this id: it was deleted or moved. " +
	"Delete the registration with nodes=release or nodes=wipe, and register the cluster where it is."

// isGone reports whether Resource Manager has answered that it does not have a cluster.
func isGone(err error) bool {
	refusal, refused := errors.AsType[*azcore.ResponseError](err)
	return refused && refusal.StatusCode == http.StatusNotFound
}

// unreachable returns the reason, for callers, that a cluster does not answer or not as it should:
// the error itself, with the operator's files and addresses, goes to the log.
func unreachable(cause error) string {
	var untrusted *tls.CertificateVerificationError
	var answered apierrors.APIStatus
	switch {
	case isGone(cause):
		return notInAzure
	case errors.Is(cause, ErrNotBound):
		return "No kubeconfig is bound to the cluster: the operator of the provider must add one to " +
			"the provider's settings."
	case errors.Is(cause, errHarm):
		return "The cluster's answers are larger than the provider accepts or do not come from an " +
			"API server: an answer that is too large, too many Nodes or requests, or a redirect."
	case errors.Is(cause, errLocal):
		return "The cluster's address is one of the provider's own: the operator of the provider " +
			"allows it in the settings."
	case apierrors.IsUnauthorized(cause), apierrors.IsForbidden(cause):
		return "The cluster refuses the provider's credentials or requests."
	case errors.As(cause, &untrusted):
		return "The cluster does not answer: its certificate is not trusted."
	case errors.Is(cause, context.DeadlineExceeded), os.IsTimeout(cause):
		return "The cluster does not answer in time."
	case errors.As(cause, &answered) && answered.Status().Code < http.StatusInternalServerError &&
		!apierrors.IsTooManyRequests(cause):
		return "The cluster refuses the provider's requests; see the provider's log for details."
	}
	return "The cluster does not answer, or access to it is denied; see the provider's log for " +
		"details."
}
