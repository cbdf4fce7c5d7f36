package service

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// A report of the worst node is one that the provider takes.
func TestReportFits(t *testing.T) {
	long := strings.Repeat("<é\n", 1000)
	r := agentapi.Report{
		Config: &agentapi.Applied{Failed: &agentapi.FailedConfig{
			Version: "1", Message: health.Clip(long, 4*reportText), Log: health.Clip(long, reportLog),
		}},
		Drift: &agentapi.Drift{},
	}
	for range reportItems {
		r.Drift.Items = append(r.Drift.Items,
			agentapi.DriftItem{Name: health.Clip(long, reportText), Message: health.Clip(long, reportText)})
	}
	r.Conditions = []agentapi.Condition{{Type: "First", Message: health.Clip(long, 4*reportText)}}
	for range reportConditions - 1 {
		r.Conditions = append(r.Conditions,
			agentapi.Condition{Type: "X", Message: health.Clip(long, reportText)})
	}
	whole, err := json.Marshal(r)
	if err != nil || len(whole) <= maxReport {
		t.Fatalf("%d bytes, %v", len(whole), err)
	}
	text, err := json.Marshal(fit(r))
	if err != nil || len(text) > maxReport || !strings.Contains(string(text), `"version":"1"`) ||
		!strings.Contains(string(text), `"First"`) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if r.Config.Failed.Log == "" {
		t.Error("the report that was given has changed")
	}
}
