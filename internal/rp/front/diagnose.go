package front

import (
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// diagnose requests a diagnosis from the agent of a node, in place of the previous one. A support
// bundle is encrypted to a key that is stored on the machine, not to one in the request. A
// subscription has a max number of diagnoses, and a rate, as the store keeps replaced ones for some
// minutes.
func (a *API) diagnose(r *request, ask api.DiagnoseRequest) (any, error) {
	var asked api.Diagnosis
	err := a.change(r, "diagnosis asked for", func(v *store.View) error {
		n, err := a.nodeIn(v, r)
		if err != nil {
			return err
		}
		n, asked, err = n.Diagnosing(ask.Kind, r.caller.Name, a.Now().UTC().Truncate(time.Second))
		if err != nil {
			return err
		}
		if !a.Store.Diagnoses.Row(v, r.nodeKey()).Exists() {
			const most = flexnode.MaxDiagnoses
			kept, err := a.Store.Diagnoses.First(r.Context(), r.subscriptionKey()+"/", most)
			v.Fail(err)
			if len(kept) == most {
				return arm.Errorf(409, "TooManyDiagnoses", "%d diagnoses of nodes of this subscription "+
					"are stored, which is the maximum. They are deleted after a day and some hours.", most)
			}
		}
		v.Fail(a.lately(r, fair.Resource(fair.Diagnoses)))
		v.Fail(a.Store.Diagnoses.Put(v, r.nodeKey(), asked))
		return a.Store.Nodes.Put(v, r.nodeKey(), n)
	})
	r.after = asked.Kind
	return asked, err
}

// listDiagnosis answers with the last diagnosis of a node: the request and its answer.
func (a *API) listDiagnosis(r *request) (any, error) {
	if _, err := a.keptNode(r); err != nil {
		return nil, err
	}
	row, err := a.Store.Diagnoses.Get(r.Context(), r.nodeKey())
	if err == nil && (!row.Exists() || a.Now().After(row.Value.Expires)) {
		err = arm.Errorf(409, "NoDiagnosis", "No diagnosis was requested from the node in the last day.")
	}
	return row.Value, err
}

func (a *API) reportDiagnosis(r *request) (any, error) {
	answer, err := flexnode.ReadDiagnosed(r.body)
	if err != nil {
		return nil, err
	}
	decide := func(v *store.View, n flexnode.Node) error {
		row := a.Store.Diagnoses.Row(v, r.nodeKey())
		next, d, err := n.Diagnosed(row.Value, answer, a.Now().UTC().Truncate(time.Second))
		if err != nil {
			return err
		}
		v.Fail(a.Store.Diagnoses.Put(v, r.nodeKey(), d))
		return a.Store.Nodes.Put(v, r.nodeKey(), next)
	}
	node, err := a.byAgent(r, "diagnosis taken", nil, decide)
	if err == nil {
		a.heard(r, pollOf(node))
	}
	return nil, err
}

// askDiagnosis adds the pending request for a diagnosis to the answer of an agent's poll.
func (a *API) askDiagnosis(r *request) {
	if poll := a.lookUp(r); !r.node && !r.caller.Trusted || poll == nil || !poll.Diagnose {
		return
	}
	row, err := a.Index.Node(r.nodeKey())
	if d := row.Value.Asked(a.Now()); err == nil && d != nil {
		r.answer.Header().Set(api.DiagnoseHeader, d.ID+" "+d.Kind)
	}
}
