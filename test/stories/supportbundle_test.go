package stories

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/support"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/redact"
)

// talkative is a host whose services log every secret they have.
type talkative struct {
	*host.Host
	lines []string
}

func (m talkative) Journal(context.Context, string, int) []string { return m.lines }

// bundleOf runs the verb, and returns the files by name.
func (w *world) bundleOf(
	ctx context.Context, lines []string,
) (files map[string]string, m redact.Manifest) {
	w.t.Helper()
	a := w.agent()
	a.Machine = talkative{a.Machine.(*host.Host), lines}
	a.Reader = a.Machine
	var out bytes.Buffer
	given := support.Given{Input: &change.Input{Config: w.config, Origin: "file"}}
	m, err := support.SupportBundle(ctx, a, given, support.JournalLines, nil, &out)
	if err != nil {
		w.t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(&out)
	if err != nil {
		w.t.Fatal(err)
	}
	files = make(map[string]string)
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, m
		}
		if err != nil {
			w.t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			w.t.Fatal(err)
		}
		if h.Mode != 0o600 {
			w.t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		files[strings.TrimPrefix(h.Name, "aks-flex-node-support/")] = string(text)
	}
}

// bird returns a secret that occurs nowhere else.
func bird(what string) string { return "Canary/" + what + "+" + strings.ToUpper(what) + "=0x7f" }

// plantSecrets puts another secret into each place for one, and returns them all.
func (w *world) plantSecrets() []string {
	const pki = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a private key's bytes ", 6)))
	pem := "-----BEGIN EC PRIVATE KEY-----\n" + key[:64] + "\n" + key[64:] +
		"\n-----END EC PRIVATE KEY-----\n"
	arcKey := strings.ReplaceAll(key, "YSBw", "QXJj")
	planted := map[string]string{
		"/var/lib/aks-flex-node/bundle.json": `{"azure": {"bootstrapToken": {"token": "zyxwvu.` +
			`fedcba9876543210"}}, "x": {"clientSecret": "` + bird("bundle") + `"}}`,
		"/run/aks-flex-node/token-0011223344556677.json": `{"token": "` + bird("cache") + `"}`,
		"/var/lib/kubelet/kubeconfig": "users: [{user: {token: " +
			bird("config") + "}}]\n",
		"/etc/kubernetes/admin.conf":            "users: [{user: {password: " + bird("admin") + "}}]\n",
		"/var/lib/kubelet/bootstrap-kubeconfig": "    token: qwerty.0011223344556677\n",
		"/var/opt/azcmagent/certs/myCert":       strings.ReplaceAll(pem, key[:64], arcKey[:64]),
		"/var/opt/azcmagent/tokens/one.key":     bird("himds"),
		"/etc/systemd/system/kubelet.service.d/theirs.conf": "[Service]\n" +
			`Environment="HTTPS_PROXY=http://me:` + bird("drop-in") + `@proxy:3128"` + "\n",
		"/etc/containerd/certs.d/_default/hosts.toml": "[host.\"https://m.example\".header]\n" +
			"  Authorization = \"Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+bird("hosts"))) +
			"\"\n",
		"/etc/containerd/conf.d/auth.toml": "password = \"" + bird("containerd") + "\"\n",
		w.config.Agent.LogDir + "/aks-flex-node.log": "level=ERROR url=https://x.example/c?sv=1&sig=" +
			url.QueryEscape(bird("sas")) + "&se=2\n",
	}
	for path, text := range planted {
		w.write(path, text)
	}
	kept := w.read(pki)
	w.write(pki, kept+pem)
	return []string{
		"zyxwvu.fedcba9876543210", "fedcba9876543210", "qwerty.0011223344556677", key[:64], key[64:],
		arcKey[:64], bird("bundle"), bird("cache"), bird("config"), bird("himds"), bird("admin"),
		bird("drop-in"), bird("hosts"), bird("containerd"), bird("sas"), bird("proxy"),
		bird("client"), w.cluster.token, strings.Split(w.cluster.token, ".")[1],
	}
}

// No secret of the machine is in a support bundle in any encoding, wherever it was, even if
// services have logged it.
func TestSupportBundleHasNoSecrets(t *testing.T) {
	w := newWorld(t)
	w.config = w.configuration(func(c map[string]any) {
		c["proxy"] = map[string]any{
			"https":   "http://user:" + url.QueryEscape(bird("proxy")) + "@127.0.0.1:9",
			"noProxy": []string{"127.0.0.1"},
		}
	})
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.write("/var/lib/aks-flex-node/credentials.json", `{"x": {"clientSecret": "`+bird("client")+`"}}`)
	secrets := w.plantSecrets()
	const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.Y2FuYXJ5LXNpZ25hdHVyZQ"
	lines := []string{"Authorization: Bearer opaque-canary-bearer", "token " + jwt,
		"POST https://u:canary-userinfo@host/path", "an innocent line",
		base64.StdEncoding.EncodeToString([]byte("kubeconfig: {token: abc123.canarycanary1234}"))}
	for _, s := range secrets {
		if strings.HasSuffix(s, bird("sas")) || s == bird("drop-in") || s == bird("hosts") ||
			s == bird("containerd") {
			continue // their only place is another program's settings file
		}
		for _, form := range encodings("before " + s + " after") {
			lines = append(lines, "seen: "+form)
		}
	}
	files, manifest := w.bundleOf(t.Context(), lines)
	secrets = append(secrets, jwt, "opaque-canary-bearer", "canary-userinfo", "canarycanary1234")
	for name, text := range files {
		decoded := decodedRuns(text)
		for _, s := range secrets {
			for _, form := range encodings(s) {
				if strings.Contains(text, form) {
					t.Errorf("%s has the secret %q as %q", name, s, form)
				}
			}
			if strings.Contains(decoded, s) {
				t.Errorf("%s has base64 of the secret %q", name, s)
			}
		}
	}
	if !strings.Contains(files["journal/kubelet.service.log"], "an innocent line") {
		t.Error("what is no secret is not in the bundle")
	}
	for _, name := range []string{"manifest.json", "doctor.json", "status.json", "endpoints.json",
		"config.json", "applied-config.json", "versions.json", "files/etc/containerd/config.toml",
		"files/var/lib/aks-flex-node/ledger.json", "files/var/lib/aks-flex-node/history.json",
		"files/etc/systemd/system/kubelet.service"} {
		if files[name] == "" {
			t.Errorf("%s is not in the bundle", name)
		}
	}
	const admin = "/etc/kubernetes/admin.conf"
	left := func(l redact.LeftOut) bool {
		return l.Name == admin && strings.Contains(l.Why, "secret")
	}
	if files["files"+admin] != "" || !slices.ContainsFunc(manifest.LeftOut, left) {
		t.Errorf("the administrator's kubeconfig: %q; left out: %+v", files["files"+admin],
			manifest.LeftOut)
	}
	for _, kind := range []string{"known secret", "JWT", "base64 of a secret", "signature"} {
		if manifest.Redacted[kind] == 0 {
			t.Errorf("the manifest counts no %s: %v", kind, manifest.Redacted)
		}
	}
}

// encodings returns the encodings of a secret.
func encodings(s string) []string {
	quoted, _ := json.Marshal(s)
	return []string{s, base64.StdEncoding.EncodeToString([]byte(s)),
		base64.RawURLEncoding.EncodeToString([]byte(s)), url.QueryEscape(s), url.PathEscape(s),
		hex.EncodeToString([]byte(s)), strings.Trim(string(quoted), `"`)}
}

// decodedRuns returns all base64 in a text, decoded at each of four offsets.
func decodedRuns(text string) string {
	var all strings.Builder
	other := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && r != '+' && r != '/'
	}
	for _, run := range strings.FieldsFunc(text, other) {
		for from := range min(4, len(run)) {
			part := run[from:]
			decoded, err := base64.RawStdEncoding.DecodeString(part[:len(part)/4*4])
			if err == nil {
				all.Write(decoded)
				all.WriteByte('\n')
			}
		}
	}
	return all.String()
}

// A bundle is limited in size and time, and its manifest lists the omissions.
func TestSupportBundleIsBounded(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	before := w.tree()
	long := strings.Repeat(strings.Repeat("x", 99)+"\n", redact.MaxFile/100+1)
	files, manifest := w.bundleOf(t.Context(), []string{"the first line", long, "the last line"})
	journal := files["journal/kubelet.service.log"]
	if len(journal) > redact.MaxFile || !strings.HasSuffix(journal, "the last line\n") {
		t.Errorf("the journal has %d bytes", len(journal))
	}
	at := slices.IndexFunc(manifest.Files, func(f redact.File) bool {
		return f.Name == "journal/kubelet.service.log"
	})
	if at < 0 || manifest.Files[at].CutFrom <= redact.MaxFile {
		t.Errorf("the manifest does not say what was cut: %+v", manifest.Files)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, manifest = w.bundleOf(ctx, []string{"a line"})
	if !slices.ContainsFunc(manifest.LeftOut, func(l redact.LeftOut) bool {
		return l.Name == "journal/kubelet.service.log" && strings.Contains(l.Why, "time")
	}) {
		t.Errorf("the manifest does not say that the time limit was reached: %+v", manifest.LeftOut)
	}
	w.same(before)
}

// An object in a directory of settings that is no file with settings - a pipe without a writer, a
// socket, a device - delays nothing: the bundle reports that it was left out.
func TestSupportBundleWaitsForNoPipe(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	const dir = "/etc/kubernetes/kubelet.conf.d"
	var strange []string
	for _, in := range []string{dir, "/etc/kubernetes", "/etc/containerd/conf.d", "/etc/sysctl.d",
		"/etc/cni/net.d", "/run/aks-flex-node", "/var/lib/kubelet/pki"} {
		if err := os.MkdirAll(w.root+in, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(w.root+in+"/pipe.conf", 0o600); err != nil {
			t.Fatal(err)
		}
		strange = append(strange, in+"/pipe.conf")
	}
	if err := unix.Mknod(w.root+dir+"/socket.conf", unix.S_IFSOCK|0o600, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", w.root+dir+"/device.conf"); err != nil {
		t.Fatal(err)
	}
	strange = append(strange[:5], dir+"/socket.conf", dir+"/device.conf")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan redact.Manifest, 1)
	go func() {
		_, m := w.bundleOf(ctx, nil)
		ended <- m
	}()
	select {
	case m := <-ended:
		for _, name := range strange {
			if !slices.ContainsFunc(m.LeftOut, func(l redact.LeftOut) bool { return l.Name == name }) {
				t.Errorf("%s is not said to be left out: %+v", name, m.LeftOut)
			}
		}
	case <-ctx.Done():
		t.Fatal("the bundle waits for a pipe")
	}
}

// printable returns a random secret of all printable characters.
func printable(random *rand.Rand) string {
	text := make([]byte, 24)
	for i := range text {
		text[i] = byte(' ' + random.IntN('~'-' '+1))
	}
	return "~" + string(text) + "!"
}

// withSecret returns a file's text with a secret under a name, as its format writes it.
func withSecret(t *testing.T, name, text, key, secret string) string {
	quoted, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	switch ext := path.Ext(name); {
	case path.Base(name) == "fstab" || path.Base(name) == "mounts":
		return text + "//nas/x /x cifs ro,pass=" + strings.ReplaceAll(secret, " ", `\040`) + " 0 0\n"
	case yaml.Unmarshal([]byte(text), &doc) == nil && len(doc) > 0:
		doc[key] = map[string]any{"list": []string{secret}}
		encoded, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if ext == ".yaml" {
			return strings.TrimSpace(text) + "\n" + key + ":\n  list:\n  - " + string(quoted) + "\n"
		}
		return string(encoded)
	case ext == ".toml":
		return strings.ReplaceAll(key, "-", "_") + " = " + string(quoted) + "\n" + text
	case ext == ".service" || ext == ".conf":
		return text + "\nEnvironment=\"X=" + secret + "\"\n# " + key + "=" + secret + "\n"
	}
	return text + "\n" + key + ": " + secret + "\n"
}

// Values under the name of a secret are removed from a collected file: of 64 random secrets of all
// printable characters in each file no six characters remain.
func TestSupportBundleOfRandomSecrets(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"/etc/fstab": "/dev/sda1 / ext4 defaults 0 1\n", "/etc/hosts": "127.0.0.1 localhost\n",
		"/etc/containerd/conf.d/auth.toml":             "version = 3\n",
		"/etc/containerd/certs.d/_default/hosts.toml":  "server = \"https://x.example\"\n",
		"/etc/kubernetes/kubelet.conf.d/theirs.conf":   "kind: KubeletConfiguration\n",
		"/etc/kubernetes/theirs.yaml":                  "kind: Config\n",
		"/etc/cni/net.d/10-theirs.conflist":            `{"name": "theirs"}`,
		"/etc/sysctl.d/theirs.conf":                    "net.ipv4.ip_forward = 1\n",
		"/etc/systemd/system/kubelet.service.d/x.conf": "[Service]\n",
		"/etc/systemd/system/kubelet.service.d/x.env":  "A=b\n",
		"/proc/cmdline":                                "root=/dev/sda1\n",
		"/proc/mounts":                                 "/dev/sda1 / ext4 rw 0 0\n",
		w.config.Agent.LogDir + "/aks-flex-node.log":   "level=INFO msg=x\n",
	} {
		w.write(name, text)
	}
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	keys := []string{"password", "auth", "identitytoken", "passphrase", "pwd", "credential",
		"AWS_SECRET_ACCESS_KEY", "client-key-data", "dbPassword2", "api_key"}
	collected, _ := w.bundleOf(t.Context(), []string{"a line"})
	planted := make(map[string][]string)
	for name := range collected {
		file, ok := strings.CutPrefix(name, "files")
		if !ok {
			continue
		}
		text := w.read(file)
		for range 64 {
			secret := printable(random)
			key := keys[random.IntN(len(keys))] + strconv.Itoa(len(planted[name]))
			text = withSecret(t, file, text, key, secret)
			planted[name] = append(planted[name], secret)
		}
		w.write(file, text)
	}
	var lines []string
	for range 64 {
		secret := printable(random)
		planted["journal/kubelet.service.log"] = append(planted["journal/kubelet.service.log"], secret)
		lines = append(lines, "x "+keys[random.IntN(len(keys))]+"="+secret)
	}
	files, _ := w.bundleOf(t.Context(), lines)
	for name, secrets := range planted {
		if files[name] == "" {
			t.Errorf("%s is not in the bundle any more", name)
		}
		for _, secret := range secrets {
			for from := range len(secret) - 5 {
				if strings.Contains(files[name], secret[from:from+6]) {
					t.Fatalf("%s has %q of the secret %q", name, secret[from:from+6], secret)
				}
			}
		}
	}
	if len(planted) < 20 {
		t.Errorf("secrets were planted in %d files only: %v", len(planted),
			slices.Collect(maps.Keys(planted)))
	}
}
