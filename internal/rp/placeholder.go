package rp

import _ "embed"

// placeholderCA stands for the CA of a cluster that has not been reached yet, when a configuration is checked. Its key was thrown away.
//
//go:embed placeholder.pem
var placeholderCA []byte
