package front

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// awkward are nodes that encoders differ in, unless they agree.
func awkward(t testing.TB) []api.FlexNodeConfig {
	t.Helper()
	at := time.Date(2026, 11, 21, 10, 12, 40, 123_000_000, time.FixedZone("", 3600))
	texts := "<script>&\"\\/\x00\b\t\n\x1f\x7f\u00e9\u2028\u2029\ufffd\U0001f600"
	full := api.FlexNodeConfig{
		ID: texts, Name: "n", ETag: `"a-1"`,
		SystemData: &api.SystemData{CreatedBy: texts, CreatedAt: at, LastModifiedAt: at.UTC()},
		Properties: api.Properties{
			Desired: api.Desired{
				NodeConfig: api.NodeConfig{
					MaxPods: -1, Taints: []string{texts, ""},
					Labels: map[string]string{"b": "", "a": texts, texts: "x", "": "y"},
				},
				UpgradePolicy: api.UpgradePolicy{MaintenanceWindow: &api.MaintenanceWindow{}},
			},
			ConfigURLExpires: &at,
			Config: map[string]any{
				"": nil, texts: texts, "z": []any{}, "y": []any(nil), "x": map[string]any{},
				"w": map[string]any(nil), "v": []any{true, false, nil, []any{"a", 1.5}},
				"u": map[string]any{"b": 1, "a": map[string]any{"é": "", "e": 0}},
				"t": json.Number("1.50e+3"), "s": json.Number("12345678901234567890"),
				"r": 1e21, "q": 1e-7, "p": math.Copysign(0, -1), "o": 100.0, "n": int64(1) << 60,
				"m": []string(nil), "l": []string{"a"}, "k": map[string]string{"b": "", "a": "<"},
				"j": []byte("bytes"), "i": []byte(nil), "h": at, "g": &at,
			},
			Status: &api.Status{
				Conditions: []api.Condition{{}, {Type: texts, LastTransitionTime: at}},
				LastSeen:   &at, Drift: &api.Drift{Items: []api.DriftItem{}},
			},
		},
	}
	nodes := []api.FlexNodeConfig{{}, full}
	for _, config := range []map[string]any{
		{}, {"a": func() {}}, {"a": json.Number("")}, {"a": json.Number("x")}, {"a": "\xff"}, {"\xff": 1},
	} {
		nodes = append(nodes, api.FlexNodeConfig{Properties: api.Properties{Config: config}})
	}
	return nodes
}

// A node is sent as arm.WriteJSON sends it, byte for byte.
func TestWriteNode(t *testing.T) {
	t.Parallel()
	for _, node := range awkward(t) {
		want, got := httptest.NewRecorder(), httptest.NewRecorder()
		want.Header().Set("ETag", node.ETag)
		arm.WriteJSON(want, http.StatusCreated, node)
		writeResource(got, true, node.ETag, node)
		if got.Code != want.Code || got.Body.String() != want.Body.String() {
			t.Errorf("status %d:\n%s\nwant %d:\n%s", got.Code, got.Body, want.Code, want.Body)
		}
		if a, b := got.Header().Get("Content-Type"), want.Header().Get("Content-Type"); a != b {
			t.Errorf("content type %q, want %q", a, b)
		}
	}
}
