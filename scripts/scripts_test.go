package scripts

import (
	"bytes"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
)

func TestShellcheck(t *testing.T) {
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("shellcheck is not on this machine")
	}
	out, err := exec.Command("shellcheck", "install.sh", "uninstall.sh", "size").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A truncated download runs nothing and prints only that it is not the whole script.
func TestCutDownload(t *testing.T) {
	for name, text := range map[string]string{"install.sh": install, "uninstall.sh": uninstall} {
		end := strings.LastIndex(text, "\nmain ") + 1
		for cut := 0; cut <= end; cut += 97 {
			cmd := exec.Command("sh", "-s", "--", "--dry-run")
			cmd.Stdin = strings.NewReader(text[:cut])
			if out, _ := cmd.Output(); len(out) > 0 {
				t.Errorf("%s, cut at %d, says %s", name, cut, out)
			}
		}
	}
}

// A release's install.sh contains what it needs to verify all other files, and works like the
// other.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(t.TempDir(), "aks-flex-node")
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := Release{Version: "1.2.3", URL: "https://example.org/x", Key: []byte{0, 1, 2}, Unit: "unit",
		Programs: map[string]string{"amd64": program, "arm64": program},
		Notices:  map[string][]byte{"amd64": []byte("terms"), "arm64": []byte("others")}}
	umask := syscall.Umask(0o077)
	err := r.Write(dir)
	syscall.Umask(umask)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"VERSION='1.2.3'", "REPOSITORY='https://example.org/x'",
		"KEY='" + base64.StdEncoding.EncodeToString(r.Key) + "'",
		"PROGRAM_AMD64='" + digest([]byte("program")) + "'",
		"PROGRAM_ARM64='" + digest([]byte("program")) + "'",
		"NOTICE_AMD64='" + digest([]byte("terms")) + "'",
		"NOTICE_ARM64='" + digest([]byte("others")) + "'",
		"UNINSTALL='" + digest([]byte(uninstall)) + "'"} {
		if !bytes.Contains(text, []byte("\n"+want+"\n")) {
			t.Errorf("install.sh does not have %s", want)
		}
	}
	head, _, _ := bytes.Cut(text, []byte("# End of what is filled in."))
	if bytes.Contains(head, []byte("=''\n")) {
		t.Error("install.sh has something that is not filled in")
	}
	if _, err := filled(install, map[string]string{"VERSION": "1'; rm -rf /'"}); err == nil {
		t.Error("a value that ends its quotes is filled in")
	}
	for _, name := range []string{"uninstall.sh", keyring, "programs/aks-flex-node_1.2.3_arm64",
		"programs/aks-flex-node_1.2.3_arm64.NOTICE", "programs/aks-flex-node_1.2.3.service"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != 0o644 {
			t.Errorf("%s, for all to read: %v, %v", name, info, err)
		}
	}
	delete(r.Notices, "arm64")
	if err := r.Write(t.TempDir()); err == nil || !strings.Contains(err.Error(), "arm64") {
		t.Errorf("without the licences of a program: %v", err)
	}
}

// The sample is a valid configuration once its placeholders are filled in.
func TestSample(t *testing.T) {
	_, rest, _ := strings.Cut(install, ".sample\" <<-END\n")
	sample, _, _ := strings.Cut(rest, "\n\tEND\n")
	_, clusters, _ := strings.Cut(install, "clusters=")
	clusters, _, _ = strings.Cut(clusters, "\n")
	filled := strings.NewReplacer("$clusters", clusters,
		"${user:+\n\t\t    $user}", `"cliUser": "ada",`,
		"your-subscription-id", "11111111-2222-3333-4444-555555555555",
		"your-tenant-id", "66666666-7777-8888-9999-000000000000",
		"your-kubernetes-version", "1.36.3").Replace(sample)
	read, err := config.Parse([]byte(filled), config.Host{HostName: "n", Arch: "amd64"})
	c := read.Config
	if err != nil || len(read.Warnings) > 0 || !c.Azure.ArcEnabled() || c.Azure.CLIUser != "ada" {
		t.Errorf("%v %v\n%s", err, read.Warnings, filled)
	}
}
