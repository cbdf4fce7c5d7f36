package azuresim

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A cluster that is added again, as after a CA rotation, replaces the previous one.
func TestControlReplacesCluster(t *testing.T) {
	const id = "/subscriptions/s/resourceGroups/g/providers/" +
		"Microsoft.ContainerService/managedClusters/c"
	s := &Sim{}
	s.AddCluster(Cluster{ID: id, CA: "old"})
	r := httptest.NewRequest(http.MethodPut, "/clusters",
		strings.NewReader(`{"id":"`+strings.ToUpper(id)+`","ca":"new"}`))
	w := httptest.NewRecorder()
	s.Control().ServeHTTP(w, r)
	if got := s.world.Clusters; w.Code != http.StatusOK || len(got) != 1 || got[0].CA != "new" {
		t.Errorf("%d: %+v", w.Code, got)
	}
}
