package untrusted

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"as it is, with ümlaut":      "as it is, with ümlaut",
		"run `rm -rf /`":             "run 'rm -rf /'",
		"a\r\nb\tc\x00d":             "a b c d",
		"\x1b]0;title\x07\x1b[2Jx":   "]0;title [2Jx",
		"c1 \u009b31m":               "c1 31m",
		"bidi \u202egpj.exe\u2066":   `bidi \u202egpj.exe\u2066`,
		"tags \U000e0041":            `tags \udb40\udc41`,
		"line\u2028separator":        "line separator",
		"broken \xff\xfe":            `broken \ufffd\ufffd`,
		"x\nWATCHDOG=trigger":        "x WATCHDOG=trigger",
		"zero\u200bwidth soft\u00ad": `zero\u200bwidth soft\u00ad`,
	} {
		if got := Text(text).String(); got != want {
			t.Errorf("%q became %q; want %q", text, got, want)
		}
	}
	if got, err := json.Marshal(Text("a\n`b`")); err != nil || string(got) != `"a 'b'"` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestReason(t *testing.T) {
	for text, want := range map[string]string{
		"KubeletNotReady": "KubeletNotReady", "": "Other", "x\nWATCHDOG=trigger": "Other",
		"a b": "Other", strings.Repeat("x", 65): "Other", "Grün": "Other", "Ready\n": "Other",
	} {
		if got := Reason(text); got != want {
			t.Errorf("%q became %q; want %q", text, got, want)
		}
	}
}

// A terminal receives no control character, and JSON remains the same text.
func FuzzWriter(f *testing.F) {
	f.Add("x\x1b[2J\u202e\u009b\u007f\xff \U000e0041")
	f.Fuzz(func(t *testing.T, text string) {
		var out, encoded bytes.Buffer
		if n, err := Writer(&out).Write([]byte(text)); err != nil || n != len(text) {
			t.Fatal(n, err)
		}
		if err := json.NewEncoder(Writer(&encoded)).Encode(text); err != nil {
			t.Fatal(err)
		}
		for _, shown := range []string{out.String(), encoded.String(), Text(text).String()} {
			for _, r := range shown {
				if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
					t.Fatalf("%q is in %q", r, shown)
				}
			}
		}
		var got string
		want := strings.ToValidUTF8(strings.Map(func(r rune) rune { return r }, text), "\ufffd")
		if err := json.Unmarshal(encoded.Bytes(), &got); err != nil || got != want {
			t.Fatalf("%q became %q: %v", want, got, err)
		}
	})
}
