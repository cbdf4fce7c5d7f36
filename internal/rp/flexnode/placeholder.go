package flexnode

import (
	_ "embed"
	"encoding/base64"
	"sync"
)

// placeholderCA stands for the CA of a cluster that has not been reached yet, when a configuration
// is checked. Its key was thrown away.
//
//go:embed placeholder.pem
var placeholderCA []byte

// placeholderFacts returns the facts that a configuration is checked with while those of its
// cluster are not known: anything valid.
var placeholderFacts = sync.OnceValue(func() Facts {
	return Facts{
		ServerURL:  "https://unknown.invalid",
		CACertData: base64.StdEncoding.EncodeToString(placeholderCA), DNSServiceIP: "10.0.0.10",
		TenantID: "00000000-0000-0000-0000-000000000000",
	}
})
