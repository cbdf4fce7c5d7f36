package front

import (
	"net/http"
	"reflect"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// reportStatus takes what an agent says of its node. It does not touch the desired configuration.
func (a *API) reportStatus(w http.ResponseWriter, r *request) error {
	report, err := flexnode.ReadReport(r.body)
	if err != nil {
		return err
	}
	uid, err := r.uid()
	if err != nil {
		return err
	}
	var node store.Row[flexnode.Node]
	key := r.nodeKey()
	ahead := []string{a.Store.Nodes.Key(key), a.Store.Status.Key(key)}
	_, err = a.Store.Update(r.Context(), "status written", ahead, func(v *store.View) error {
		var err error
		// A node that is being deleted gets no status.
		if node, err = a.Store.Nodes.In(v, key); err != nil || !node.Exists() {
			return err
		}
		status, err := a.Store.Status.In(v, key)
		if err != nil || !named(uid, node.Value.UID) {
			return err
		}
		if err := a.mayHave(r, node.Value); err != nil {
			return err
		}
		if status.Exists() && reflect.DeepEqual(status.Value.Report, report) {
			return nil
		}
		next := status.Value
		next.Report = report
		return a.Store.Status.Put(v, key, next)
	})
	if err != nil {
		return err
	}
	if !node.Exists() || !named(uid, node.Value.UID) {
		return a.notFound(r, uid)
	}
	poll := pollOf(node.Value)
	if _, _, failed := (flexnode.Status{Report: report}).Versions(); failed != 0 &&
		failed == node.Value.Revision { // it goes back, perhaps to a former identity
		poll.Former, poll.Joining = "", false
	}
	a.heard(r, uid, poll)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
