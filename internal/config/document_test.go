package config

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	testCluster = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/edge-(west)" +
		"/providers/Microsoft.ContainerService/managedClusters/edge"
	testTenant = "66666666-7777-8888-9999-000000000000"
	testToken  = "abcdef.012345678canary1"
	testSecret = "canary~Principal8Q~secret"
	testProxy  = "http://user:canaryPassword@proxy.example:3128"
)

func testHost() Host { return Host{HostName: "Edge-01", Arch: "amd64"} }

// certificate makes a self-signed certificate as caCertData.
func certificate(t testing.TB, ca bool) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Unix(1, 0),
		Subject:               pkix.Name{CommonName: "kubernetes"},
		BasicConstraintsValid: true, IsCA: ca,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	block := &pem.Block{Type: "CERTIFICATE", Bytes: der}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(block))
}

// document is a configuration in the making.
type document map[string]any

// tokenDocument joins with a bootstrap token and sets nothing that has a default.
func tokenDocument(t testing.TB) document {
	return parseJSON(t, `{
		"azure": {
			"bootstrapToken": {"token": "`+testToken+`"},
			"targetCluster": {"resourceId": "`+testCluster+`", "location": "westeurope"}
		},
		"node": {"kubelet": {
			"serverURL": "https://edge.example:443",
			"caCertData": "`+certificate(t, true)+`"
		}}
	}`)
}

// azureDocument authenticates by the given members of azure.
func azureDocument(t testing.TB, members string) document {
	return parseJSON(t, `{"azure": {
		"tenantId": "`+testTenant+`",
		"targetCluster": {"resourceId": "`+testCluster+`", "location": "westeurope"},
		`+members+`
	}}`)
}

func parseJSON(t testing.TB, text string) document {
	t.Helper()
	var d document
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return d
}

// with lays a JSON merge patch (RFC 7396) over the document.
func (d document) with(t testing.TB, patch string) document {
	t.Helper()
	return merge(parseJSON(t, string(d.bytes(t))), parseJSON(t, patch))
}

func merge(dst, patch map[string]any) map[string]any {
	if dst == nil {
		dst = map[string]any{}
	}
	for name, v := range patch {
		switch next := v.(type) {
		case nil:
			delete(dst, name)
		case map[string]any:
			inner, _ := dst[name].(map[string]any)
			dst[name] = merge(inner, next)
		default:
			dst[name] = v
		}
	}
	return dst
}

func (d document) bytes(t testing.TB) []byte {
	t.Helper()
	data, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// parseOK parses a document that must be valid.
func parseOK(t testing.TB, d document) (Config, []Warning) {
	t.Helper()
	read, err := Parse(d.bytes(t), testHost())
	c, warnings := read.Config, read.Warnings
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	checkDecoded(t, d.bytes(t), nil)
	return c, warnings
}

// checkDecoded holds that a document has the same problems when it was decoded before, but for
// those that decoding loses.
func checkDecoded(t testing.TB, data []byte, want Problems) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var decoded map[string]any
	lost := func(p Problem) bool { return p.Path == "" || p.Message == "is given twice: keep one" }
	if slices.ContainsFunc(want, lost) || d.Decode(&decoded) != nil {
		return
	}
	_, err := ParseDecoded(decoded, testHost())
	found, _ := err.(Problems)
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("of the decoded document: %s", diff)
	}
}

// parseBad parses a document that must not be valid.
func parseBad(t testing.TB, data []byte) Problems {
	t.Helper()
	_, err := Parse(data, testHost())
	problems, ok := err.(Problems)
	if !ok {
		t.Fatalf("Parse gave %v, want problems, for %s", err, data)
	}
	checkDecoded(t, data, problems)
	return problems
}

func TestSyntax(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "the configuration is empty",
		" \n":                               "the configuration is empty",
		"[]":                                "must be an object ({...}), not a list",
		"{\n  // a comment\n}":              "line 2, column 3: invalid character '/'",
		"{\n\"agent\": {} # x\n}":           "line 2, column 13: invalid character '#'",
		`{"azure": {},}`:                    "line 1, column 14: invalid character '}'",
		`{"azure": {}`:                      "line 1, column 12: unexpected end of JSON input",
		"{\"a\u00e9\": \x80}":               "line 1, column 8: this is not UTF-8",
		"{\n\"ä\": x}":                      "line 2, column 6: invalid character 'x'",
		`{} {}`:                             "line 1, column 4: invalid character",
		`{"azure": {"cloud": "a"}} garbage`: "line 1, column 27: invalid character",
	} {
		problems := parseBad(t, []byte(text))
		if len(problems) != 1 || !strings.Contains(problems.Error(), want) {
			t.Errorf("%q gives %q, want %q", text, problems.Error(), want)
		}
	}
}

func TestByteOrderMark(t *testing.T) {
	data := append([]byte("\xef\xbb\xbf"), tokenDocument(t).bytes(t)...)
	if _, err := Parse(data, testHost()); err != nil {
		t.Error(err)
	}
}
