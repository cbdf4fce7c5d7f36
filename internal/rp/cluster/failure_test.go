package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// The owner of a registration sees none of the operator's files and addresses.
func TestUnreachableTellsNoSecrets(t *testing.T) {
	for want, cause := range map[string]error{
		"was deleted or moved": fmt.Errorf("cannot get it: %w", &azcore.ResponseError{
			StatusCode: 404, ErrorCode: "10.1.2.3"}),
		"No kubeconfig is bound": fmt.Errorf("cannot use it: %w", ErrNotBound),
		"refuses the provider's": apierrors.NewUnauthorized("at 10.1.2.3"),
		"is not trusted": &tls.CertificateVerificationError{
			Err: x509.UnknownAuthorityError{Cert: &x509.Certificate{}}},
		"refuses the provider's requests": apierrors.NewBadRequest("at 10.1.2.3"),
		"access to it is denied": apierrors.NewInternalError(
			errors.New("at 10.1.2.3")),
		"in time": fmt.Errorf("Get \"https://10.1.2.3\": %w", context.DeadlineExceeded),
		"does not answer, or": errors.Join(
			&fs.PathError{Op: "open", Path: "/etc/flexnode-rp/10.1.2.3", Err: fs.ErrNotExist},
			&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("10.1.2.3: refused")}),
	} {
		got := unreachable(cause)
		if !strings.Contains(got, want) || strings.Contains(got, "10.1.2.3") ||
			strings.Contains(got, "/etc") {
			t.Errorf("%v is reported as %q", cause, got)
		}
	}
}

// A registration shows that its cluster was deleted or moved in Azure; while that answers, it is
// used.
func TestAClusterThatAzureDoesNotHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newWorld(t), newFakeCluster("factory")
		var gone atomic.Bool
		w.manager.Source = sourceOf(func(ctx context.Context, k flexnode.Cluster) (Access, error) {
			if gone.Load() {
				return Access{}, &azcore.ResponseError{StatusCode: http.StatusNotFound}
			}
			return w.source.Access(ctx, k, false)
		})
		w.register(factoryID, c)
		w.own(factory)
		pass(time.Minute)
		gone.Store(true)
		pass(2 * probeInterval)
		got := w.cluster(factory)
		if !got.Properties.Reachable || !strings.Contains(got.Probe.Message(), notInAzure) {
			t.Errorf("it was moved: %+v", got.Probe)
		}
		c.Down.Store(true)
		pass(2 * time.Minute)
		got = w.cluster(factory)
		if got.Properties.Reachable || got.Probe.Unreachable != notInAzure {
			t.Errorf("it was deleted: %+v", got.Probe)
		}
	})
}
