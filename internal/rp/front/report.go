package front

import (
	"net/http"
	"reflect"
	"time"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// reportStatus takes what an agent says of its node. It does not touch the desired configuration.
func (a *API) reportStatus(w http.ResponseWriter, r *request) error {
	report, err := flexnode.ReadReport(r.body)
	if err != nil {
		return err
	}
	key := r.nodeKey()
	decide := func(v *store.View, _ flexnode.Node) error {
		status := a.Store.Status.Row(v, key)
		if status.Exists() && reflect.DeepEqual(status.Value.Report, report) {
			return nil
		}
		next := status.Value
		if r.caller.isMachine() {
			if !next.Follows(r.caller.Signed, a.Now()) {
				return arm.Errorf(409, "ReportOutOfOrder", "A report that was made after this one was taken "+
					"already.")
			}
			next.Signed, next.Taken = r.caller.Signed.UTC(), a.Now().UTC().Truncate(time.Second)
		}
		next.Report = report
		return a.Store.Status.Put(v, key, next)
	}
	// A node that is being deleted gets no status.
	node, err := a.byAgent(r, "status written", []string{a.Store.Status.Key(key)}, decide)
	if err != nil {
		return err
	}
	poll := pollOf(node)
	if _, _, failed := (flexnode.Status{Report: report}).Versions(); failed != 0 &&
		failed == node.Revision { // it goes back, perhaps to a former identity
		poll.Former, poll.Joining = "", false
	}
	a.heard(r, poll)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
