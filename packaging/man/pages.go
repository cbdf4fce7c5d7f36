package man

import "embed"

// Pages are the pages that are kept, each with Date in the place of its date.
//
//go:embed pages
var Pages embed.FS
