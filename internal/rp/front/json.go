package front

import (
	"net/http"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// writeNode sends a node and its ETag.
func writeNode(w http.ResponseWriter, status int, node api.FlexNodeConfig) {
	w.Header().Set("ETag", node.ETag)
	arm.WriteJSON(w, status, node)
}
