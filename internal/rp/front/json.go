package front

import (
	"net/http"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// writeResource answers with a resource, which was created or not, and its ETag.
func writeResource(w http.ResponseWriter, created bool, etag string, resource any) {
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	w.Header().Set("ETag", etag)
	arm.WriteJSON(w, status, resource)
}
