package service

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/history"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Limits of a report: the provider accepts 8 KiB in all (docs/reference/api.md).
const reportConditions, reportItems, reportText, reportLog = 12, 10, 200, 1500

// reportOf returns the report for the provider, with the conditions that are not True.
func reportOf(a *change.Agent, s inspect.Status) agentapi.Report {
	received := a.Records().BundleResource()
	source := inspect.Source(&a.Env)
	r := agentapi.Report{
		Components: &agentapi.Components{
			Kubelet: s.Runs.Kubelet, Containerd: s.Runs.Containerd, Runc: s.Runc,
			CNI: s.CNI, NPD: s.NPD, Agent: health.Clip(a.Version, 64),
			Kernel: health.Clip(s.Runs.Kernel, 64), OS: health.Clip(s.Runs.OS, 64),
		},
		Config: &agentapi.Applied{Observed: received.ConfigVersion,
			Applied: source.Applied.ConfigVersion},
		Drift: &agentapi.Drift{Policy: s.DriftPolicy, Count: len(s.Drift)},
	}
	if !source.AppliedAt.IsZero() {
		r.LastConfigApplied = &source.AppliedAt
	}
	if len(s.Drift) > 0 {
		r.Drift.LastSeen = &s.CheckedAt
	}
	if digest, err := a.Records().BundleDigest(); err == nil && digest != "" {
		r.Config.Failed = failedOf(s.Rejected, digest, received.ConfigVersion)
	}
	for _, d := range s.Drift[:min(len(s.Drift), reportItems)] {
		r.Drift.Items = append(r.Drift.Items, agentapi.DriftItem{
			Name:    health.Clip(string(d.Key), reportText),
			Message: health.Clip("expected "+d.Expected+", found "+d.Found, reportText),
		})
	}
	for _, c := range health.ToReport(s.Conditions, reportConditions) {
		limit := reportText
		if c.Type == health.NoChangeWaiting {
			limit *= 4 // it lists the pods and budgets
		}
		r.Conditions = append(r.Conditions, agentapi.Condition{
			Type: c.Type, Status: string(c.Status), Reason: c.Reason,
			Message: health.Clip(c.Message, limit), LastTransitionTime: c.Since,
		})
	}
	return r
}

// failedOf returns the failure of the document with a digest, nil if it has not failed.
func failedOf(rejected history.Rejections, digest, version string) *agentapi.FailedConfig {
	r, failed := rejected.Of(digest)
	if !failed || version == "" {
		return nil
	}
	why := "Rejected"
	if r.ByHand {
		why = agentapi.RolledBack
	}
	return &agentapi.FailedConfig{
		Version: version, Reason: why, Message: health.Clip(r.Reason, 4*reportText),
		Log: health.ClipLines(r.Log, reportLog), At: &r.At,
	}
}

// maxReport is the provider's limit, in bytes (docs/reference/api.md), less the request's overhead.
const maxReport = 8000

// fit shortens a report that is too large: first the log, then the ends of drift and conditions.
func fit(r agentapi.Report) agentapi.Report {
	config, drift := *r.Config, *r.Drift
	r.Config, r.Drift = &config, &drift
	for {
		if text, err := json.Marshal(r); err != nil || len(text) <= maxReport {
			return r
		}
		switch {
		case r.Config.Failed != nil && r.Config.Failed.Log != "":
			failed := *r.Config.Failed
			failed.Log = ""
			r.Config.Failed = &failed
		case len(r.Drift.Items) > 1:
			r.Drift.Items = r.Drift.Items[:len(r.Drift.Items)/2]
		case len(r.Conditions) > 1:
			r.Conditions = r.Conditions[:len(r.Conditions)/2]
		default:
			return r
		}
	}
}

const diagnosePause = time.Minute

// never lists the answers after which a diagnosis is not sent again.
var never = []int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge}

// diagnose answers requests for diagnoses. The next poll repeats those that failed.
func (f *Following) diagnose(ctx context.Context) {
	answered := ""
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-f.questions:
			id, kind := q.Diagnose, q.Kind
			if id == answered {
				continue
			}
			f.agent.Log.Info("the provider has requested a diagnosis", "kind", kind, "id", id)
			d := f.Diagnose(ctx, kind)
			d.ID = id
			err := f.Resource.Diagnosed(ctx, d)
			refused, _ := errors.AsType[*follow.RefusedError](err)
			if err == nil || refused != nil && slices.Contains(never, refused.Status) {
				answered = id
			}
			if err != nil {
				f.agent.Log.Warn("the diagnosis is not delivered", "kind", kind, "id", id, "error", err)
			} else {
				f.agent.Log.Info("the provider has the diagnosis", "kind", kind, "id", id,
					"refused", d.Refused, "bytes", len(d.SupportBundle))
			}
		}
		if !wait.Sleep(ctx, diagnosePause) {
			return
		}
	}
}
