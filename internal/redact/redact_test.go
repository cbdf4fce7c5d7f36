package redact

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

// What looks like a secret goes, and what does not stays.
func TestRedact(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	const key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEdeadbeef\n-----END RSA PRIVATE KEY-----"
	for text, want := range map[string]string{
		"a known-secret here":                                  "a [redacted] here",
		"x=known%2Dsecret":                                     "x=known%2Dsecret",
		"Bearer abcdef012345":                                  "Bearer [redacted]",
		"join abcdef.0123456789abcdef":                         "join [redacted]",
		"https://u:pass@h/p":                                   "https://[redacted]@h/p",
		"?sv=1&sig=abc%2Bdef&se=2":                             "?sv=1&sig=[redacted]&se=2",
		`"clientSecret": "hunter22"`:                           `"clientSecret": "[redacted]"`,
		"key:\n" + key + "\nend":                               "key:\n[redacted]\nend",
		"cut: " + key[:40]:                                     "cut: [redacted]",
		"data: " + b64(key):                                    "data: [redacted]",
		"twice: " + b64(b64(key)):                              "twice: [redacted]",
		"aligned: " + b64("xy known-secret z, and more of it"): "aligned: [redacted]",
		"Environment=A=b c\nExecStart=/x":                      "Environment=A=[redacted]\nExecStart=/x",
		"kubelet v1.34.4 at 10.0.0.4:6443":                     "kubelet v1.34.4 at 10.0.0.4:6443",
		"sha256:" + strings.Repeat("0a", 32):                   "sha256:" + strings.Repeat("0a", 32),
	} {
		r := new(Redactor)
		r.Know("known-secret")
		got := r.Redact(text)
		if strings.HasPrefix(text, "aligned") { // its neighbours may stay
			if strings.Contains(got, b64("known-secret")[4:12]) || !strings.Contains(got, Redacted) {
				t.Errorf("%q became %q", text, got)
			}
			continue
		}
		if got != want {
			t.Errorf("%q became %q; want %q", text, got, want)
		}
	}
}

// The rest of a key whose beginning was cut off goes, too.
func TestHalfAKey(t *testing.T) {
	const text = "MIIEdead\n-----END EC PRIVATE KEY-----\nnext"
	if got := withoutHalfKey(text); strings.TrimSpace(got) != "next" {
		t.Errorf("it became %q", got)
	}
}

// A text that has to be cut and has no lines would be cut in the middle of a secret, of which half
// is not recognised: nothing of it is kept.
func TestHalfASecret(t *testing.T) {
	r := new(Redactor)
	const secret = "a-known-secret-of-this-machine"
	r.Know(secret)
	var out bytes.Buffer
	a := NewArchive(&out, r, "1", time.Now())
	text := "x" + secret + strings.Repeat("y", MaxFile-10)
	a.Add("one-line.json", text)
	m, err := a.Close()
	if err != nil || len(m.Files) != 1 || m.Files[0].Bytes != 0 || m.Files[0].CutFrom != len(text) {
		t.Errorf("%+v, %v", m, err)
	}
}
