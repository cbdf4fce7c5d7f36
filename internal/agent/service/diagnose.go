package service

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

const diagnosePause = time.Minute

// never are the answers by which a provider never takes a diagnosis.
var never = []int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge}

type question struct{ id, kind string }

func (f *Following) askDiagnosis(answer follow.Answer) {
	if answer.Diagnose == "" || f.Diagnose == nil {
		return
	}
	select {
	case f.questions <- question{answer.Diagnose, answer.Kind}:
	default: // it is at work
	}
}

// diagnose answers requests for diagnoses. One that could not be answered is in the next poll
// again.
func (f *Following) diagnose(ctx context.Context) {
	answered := ""
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-f.questions:
			if q.id == answered {
				continue
			}
			f.agent.Log.Info("the provider asks for a diagnosis", "kind", q.kind, "id", q.id)
			d := f.Diagnose(ctx, q.kind)
			d.ID = q.id
			err := f.Resource.Diagnosed(ctx, d)
			refused, _ := errors.AsType[*follow.RefusedError](err)
			if err == nil || refused != nil && slices.Contains(never, refused.Status) {
				answered = q.id
			}
			if err != nil {
				f.agent.Log.Warn("the diagnosis is not delivered", "kind", q.kind, "id", q.id,
					"error", err)
			} else {
				f.agent.Log.Info("the provider has the diagnosis", "kind", q.kind, "id", q.id,
					"refused", d.Refused, "bytes", len(d.SupportBundle))
			}
		}
		if !wait.Sleep(ctx, diagnosePause) {
			return
		}
	}
}
