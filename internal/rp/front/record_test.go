package front

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
)

// record writes an exchange to $FLEXNODE_RECORD, where `make contract` replays it from through a
// third party's validator.
func record(t testing.TB, r *http.Request, sent string, recorder *httptest.ResponseRecorder) {
	t.Helper()
	dir := os.Getenv("FLEXNODE_RECORD")
	if dir == "" || strings.HasPrefix(r.URL.Path, credential.HandoutPath) ||
		strings.Contains(r.URL.Path, "/managedClusters/providers") { // to the validator a provider
		return
	}
	line := must(json.Marshal(map[string]any{
		"request": map[string]any{
			"method": r.Method, "url": r.URL.RequestURI(), "headers": flat(r.Header),
			"body": parsed(sent),
		},
		"response": map[string]any{
			"status": recorder.Code, "headers": flat(recorder.Header()),
			"body": parsed(recorder.Body.String()),
		},
	}))
	name := strings.ReplaceAll(t.Name(), "/", "-") + ".jsonl"
	f := must(os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
	defer f.Close()
	must(f.Write(append(line, '\n')))
}

func flat(h http.Header) map[string]string {
	flat := map[string]string{}
	for name, values := range h {
		flat[strings.ToLower(name)] = values[0]
	}
	return flat
}

func parsed(text string) any {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return nil
	}
	return v
}
