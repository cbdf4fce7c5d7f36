package front

import (
	"net/http"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// diagnose asks the agent of a node for a diagnosis, in place of the one before. The key that a
// support bundle is encrypted to stands on the machine, and not in the request.
func (a *API) diagnose(w http.ResponseWriter, r *request) error {
	var ask api.DiagnoseRequest
	if err := flexnode.Decode(r.body, &ask); err != nil {
		return err
	}
	if err := a.roomForDiagnosis(r); err != nil {
		return err
	}
	key := r.nodeKey()
	ahead := []string{a.Store.Nodes.Key(key), a.Store.Diagnoses.Key(key)}
	var asked api.Diagnosis
	_, err := a.Store.Update(r.Context(), "diagnosis asked for", ahead, func(v *store.View) error {
		n := a.Store.Nodes.Row(v, key)
		if !n.Exists() {
			return a.notFound(r)
		}
		next, d, err := n.Value.Diagnosing(ask.Kind, r.caller.Name, a.Now().UTC().Truncate(time.Second))
		if err != nil {
			return err
		}
		asked = d
		if err := a.Store.Diagnoses.Put(v, key, d); err != nil {
			return err
		}
		return a.Store.Nodes.Put(v, key, next)
	})
	if err != nil {
		return err
	}
	r.after = asked.Kind
	arm.WriteJSON(w, http.StatusOK, asked)
	return nil
}

// roomForDiagnosis is an error where as many diagnoses of the cluster's nodes are kept as may be.
func (a *API) roomForDiagnosis(r *request) error {
	rows := a.Store.Diagnoses
	own, err := rows.Get(r.Context(), r.nodeKey())
	if err != nil || own.Exists() {
		return err
	}
	kept, _, err := a.Store.Keys(r.Context(), rows.Key(r.clusterKey()+"/"), "", flexnode.MaxDiagnoses)
	if err != nil {
		return err
	}
	if len(kept) == flexnode.MaxDiagnoses {
		return arm.Errorf(409, "TooManyDiagnoses", "%d diagnoses of nodes of this cluster are kept, as "+
			"many as may be. They end after a day.", flexnode.MaxDiagnoses)
	}
	return nil
}

// listDiagnosis tells what a node was asked for last, and what it has answered.
func (a *API) listDiagnosis(w http.ResponseWriter, r *request) error {
	node, err := a.Store.Nodes.Get(r.Context(), r.nodeKey())
	if err != nil {
		return err
	}
	if !node.Exists() {
		return a.notFound(r)
	}
	row, err := a.Store.Diagnoses.Get(r.Context(), r.nodeKey())
	if err != nil {
		return err
	}
	if !row.Exists() || a.Now().After(row.Value.Expires) {
		return arm.Errorf(409, "NoDiagnosis", "The node was not asked for a diagnosis in the last day.")
	}
	arm.WriteJSON(w, http.StatusOK, row.Value)
	return nil
}

// reportDiagnosis takes what a node's agent has found out.
func (a *API) reportDiagnosis(w http.ResponseWriter, r *request) error {
	answer, err := flexnode.ReadDiagnosed(r.body)
	if err != nil {
		return err
	}
	key := r.nodeKey()
	node, err := a.byAgent(r, "diagnosis taken", []string{a.Store.Diagnoses.Key(key)},
		func(v *store.View, n flexnode.Node) error {
			row := a.Store.Diagnoses.Row(v, key)
			next, d, err := n.Diagnosed(row.Value, answer, a.Now().UTC().Truncate(time.Second))
			if err != nil {
				return err
			}
			if err := a.Store.Diagnoses.Put(v, key, d); err != nil {
				return err
			}
			return a.Store.Nodes.Put(v, key, next)
		})
	if err != nil {
		return err
	}
	a.heard(r, pollOf(node))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// askDiagnosis tells the agent that polls which diagnosis it is asked for.
func (a *API) askDiagnosis(w http.ResponseWriter, r *request) {
	if r.known == nil {
		a.lookUp(r)
	}
	if !r.node && !r.caller.Trusted || r.known == nil || !r.known.Diagnose {
		return
	}
	row, err := a.Index.Node(r.nodeKey())
	if err != nil {
		return
	}
	if d := row.Value.Asked(a.Now()); d != nil {
		w.Header().Set(api.DiagnoseHeader, d.ID+" "+d.Kind)
	}
}
