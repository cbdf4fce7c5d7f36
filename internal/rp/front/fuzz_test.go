package front

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// FuzzRequest sends anything as a request: the answer is an answer of ARM, and never an internal
// error.
func FuzzRequest(f *testing.F) {
	f.Add("GET", nodeURL("n"), "")
	f.Add("PUT", nodeURL("n"), withPrincipal)
	f.Add("PUT", nodeURL("n")+"&configUrl=true", withToken)
	f.Add("POST", nodeURL("n", "/reportStatus"), `{"conditions":[{"type":"A","status":"True"}]}`)
	f.Add("POST", nodeURL("n", "/reportStatus"), fullReport("7"))
	f.Add("POST", nodeURL("n", "/beginChange"), `{"configVersion":"7"}`)
	f.Add("PUT", nodeURL("n"), withPolicies)
	f.Add("POST", nodeURL("n", "/refreshCredentials"), `{"publicKey":"AAAA"}`)
	f.Add("GET", cluster+"/flexNodeConfig"+versionQuery+"&$top=1&$skipToken=x", "")
	f.Add("PUT", cluster+versionQuery,
		`{"location":"x","properties":{"podCidr":"10.0.0.0/8","nodeCidrMask":24}}`)
	f.Add("DELETE", "/subscriptions/%2e%2e/x?api-version=1", "\x00")
	f.Add("DELETE", cluster+versionQuery+"&dryRun=true&nodes=wipe", "")
	f.Add("GET", operationURL("00000000-0000-0000-0000-000000000001"), "")
	w := newWorld(f)
	w.register("")
	w.api.Patience = 100 * time.Millisecond
	f.Fuzz(func(t *testing.T, method, url, body string) {
		if strings.ContainsAny(method, " \r\n\t") || method == "" ||
			!strings.HasPrefix(url, "/") || strings.ContainsAny(url, " \r\n\t\x00\x7f") {
			return
		}
		r, err := http.NewRequest(method, publicURL+url, strings.NewReader(body))
		if err != nil || r.URL.Host != "provider.example" {
			return
		}
		r.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		w.front.ServeHTTP(recorder, r)
		if recorder.Code >= 500 {
			t.Fatalf("%d %s", recorder.Code, recorder.Body)
		}
		if recorder.Code >= 400 && code(recorder.Body.String()) == "" {
			t.Fatalf("no error of ARM: %d %s", recorder.Code, recorder.Body)
		}
	})
}
