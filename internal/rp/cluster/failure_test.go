package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The owner of a registration sees nothing of the operator's files and addresses.
func TestUnreachableTellsNoSecrets(t *testing.T) {
	for want, cause := range map[string]error{
		"No kubeconfig is bound": fmt.Errorf("cannot use it: %w", ErrNotBound),
		"refuses the provider's": apierrors.NewUnauthorized("at 10.1.2.3"),
		"is not trusted": &tls.CertificateVerificationError{
			Err: x509.UnknownAuthorityError{Cert: &x509.Certificate{}}},
		"refuses what": apierrors.NewBadRequest("at 10.1.2.3"),
		"there is no access to it": apierrors.NewInternalError(
			errors.New("at 10.1.2.3")),
		"in time": fmt.Errorf("Get \"https://10.1.2.3\": %w", context.DeadlineExceeded),
		"does not answer, or": errors.Join(
			&fs.PathError{Op: "open", Path: "/etc/flexnode-rp/10.1.2.3", Err: fs.ErrNotExist},
			&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("10.1.2.3: refused")}),
	} {
		got := unreachable(cause)
		if !strings.Contains(got, want) || strings.Contains(got, "10.1.2.3") ||
			strings.Contains(got, "/etc") {
			t.Errorf("%v is told as %q", cause, got)
		}
	}
}
