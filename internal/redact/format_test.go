package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
)

// secretOf returns a random secret of all printable characters.
func secretOf(random *rand.Rand) string {
	text := make([]byte, 12+random.IntN(20))
	for i := range text {
		text[i] = byte(' ' + random.IntN('~'-' '+1))
	}
	return "~" + strings.TrimSpace(string(text)) + "!"
}

// formats write a secret as each format that a support bundle has.
func formats(t *testing.T) map[string]func(secret string) string {
	encoded := func(v any, encode func(any) ([]byte, error)) string {
		text, err := encode(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	table := func(name, secret string) map[string]any {
		return map[string]any{"keep": "kept", "in": map[string]any{name: secret},
			"list": []map[string]any{{name: secret}}, "header": map[string]any{"X-Own": secret}}
	}
	inTOML := func(name string) func(string) string {
		return func(secret string) string { return encoded(table(name, secret), toml.Marshal) }
	}
	return map[string]func(string) string{
		"registry.toml": inTOML("auth"),
		"identity.toml": inTOML("identitytoken"),
		"broken.toml": func(s string) string {
			return "keep = kept\n[a\npassword = '''\n" + s + "\n'''\n"
		},
		"kubelet.conf": func(s string) string { return "keep: kept\nin:\n- passphrase: " + quote(s) },
		"comment.yaml": func(s string) string {
			return "keep: kept\n# " + s + "\n---\npwd: " + quote(s)
		},
		"10-net.conflist": func(s string) string { return encoded(table("credential", s), json.Marshal) },
		"lines.json": func(s string) string {
			return `{"keep":"kept"}` + "\n" + encoded(table("secret", s), json.Marshal)
		},
		"pod.yaml": func(s string) string {
			return "keep: kept\nenv:\n- name: DATABASE\n  value: " + quote(s)
		},
		"AWS.env": func(s string) string {
			return "keep=kept\nAWS_SECRET_ACCESS_KEY=" + s + "\n"
		},
		"theirs.service": func(s string) string {
			return "keep=kept\nEnvironment=A=b \\\n  C=" + s + "\n"
		},
		"journal/own.log": func(s string) string { return "keep kept\nlevel=INFO password=" + s + "\n" },
		"journal/go.log": func(s string) string {
			return "keep kept\n" + fmt.Sprintf("pwd=%q at=now\n", s)
		},
		"journal/json.log": func(s string) string {
			return "keep kept\nsent " + encoded(map[string]any{"apiKey": s, "z": "on"}, json.Marshal)
		},
		"hosts":   func(s string) string { return "keep kept\n# passphrase: " + s + "\n" },
		"cmdline": func(s string) string { return "keep kept --client-secret " + s + "\n" },
		"etc/fstab": func(s string) string {
			return "/keep /kept ext4 rw 0 0\n//nas/x /x cifs username=svc,pass=" +
				strings.ReplaceAll(s, " ", `\040`) + " 0 0\n"
		},
		"proc/mounts": func(s string) string {
			return "/keep /kept ext4 rw 0 0\nftp#me:" + strings.ReplaceAll(s, " ", `\040`) +
				"@host /x fuse ro 0 0\n"
		},
	}
}

func quote(s string) string {
	text, _ := json.Marshal(s) // a string
	return string(text)
}

// No named secret of printable characters remains in any format, and what is none does.
func TestFormats(t *testing.T) {
	for name, write := range formats(t) {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
			for range 64 {
				secret := secretOf(random)
				text := write(secret)
				got := new(Redactor).File(name, text)
				for piece := range pieces(secret) {
					if strings.Contains(got, piece) {
						t.Fatalf("%q of the secret %q remains:\n%s\nof\n%s", piece, secret, got, text)
					}
				}
				if !strings.Contains(got, "keep") ||
					name != "broken.toml" && name != "AWS.env" && !strings.Contains(got, "kept") {
					t.Fatalf("too much is gone:\n%s\nof\n%s", got, text)
				}
			}
		})
	}
}

// pieces are all parts of a secret that are long enough not to occur elsewhere.
func pieces(secret string) func(func(string) bool) {
	return func(yield func(string) bool) {
		const long = 6
		for from := range len(secret) - long + 1 {
			if !yield(secret[from : from+long]) {
				return
			}
		}
	}
}

// What says how a machine is stays in each format.
func TestFormatsKeep(t *testing.T) {
	for name, text := range map[string]string{
		"proc/mounts": "overlay / overlay rw,relatime,lowerdir=/a:/b,upperdir=/c 0 0\n",
		"etc/fstab":   "UUID=1-2 /boot/efi vfat umask=0077,nofail 0 1\n",
		"k.conf":      "{\n  \"authorization\": {\n    \"mode\": \"Webhook\"\n  }\n}\n",
		"c.toml":      "version = 3\n\n[plugins]\n  sandbox = \"pause:3.10\"\n",
		"sysctl.conf": "net.ipv4.ip_forward = 1\n",
		"a.json":      "{\n  \"bytes\": 12345678901234567890,\n  \"token\": null\n}\n",
	} {
		if got := new(Redactor).File(name, text); got != text {
			t.Errorf("%s became\n%s\nof\n%s", name, got, text)
		}
	}
}

// Credentials that their issuers give a form of their own are found without a name.
func TestIssuersForms(t *testing.T) {
	const x = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8S9t0"
	for _, secret := range []string{"AKIAABCDEFGHIJ234567", "ghp_" + x[:36], "glpat-" + x[:20],
		"abc8Q~" + x[:34], "hvs." + x + x + x, "xoxb-1234567890-" + x[:24], "npm_" + x[:36],
		"AGE-SECRET-KEY-1" + strings.Repeat("Q", 58), "dckr_pat_" + x[:27], "AIza" + x[:35]} {
		if got := new(Redactor).Redact("saw " + secret + " here"); got != "saw [redacted] here" {
			t.Errorf("%q remains in %q", secret, got)
		}
	}
}

// Values that an archive is given are redacted by the names of their members.
func TestArchiveValue(t *testing.T) {
	var out bytes.Buffer
	a := NewArchive(&out, new(Redactor), "1", time.Now())
	a.Value("x.json", map[string]any{"password": "a", "n": 1})
	m, err := a.Close()
	if err != nil || m.Redacted["named secret"] != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}
