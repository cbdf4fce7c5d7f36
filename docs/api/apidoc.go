// Package apidoc holds the OpenAPI document of the resource provider, which api/typespec yields.
package apidoc

import _ "embed"

// OpenAPI is the document.
//
//go:embed openapi.json
var OpenAPI []byte
