package front

import (
	"encoding/base64"

	_ "embed"
)

//go:embed testdata/ca.pem
var caPEM []byte

// testCA is the CA of the cluster, as kubeconfigs have it.
var testCA = base64.StdEncoding.EncodeToString(caPEM)
