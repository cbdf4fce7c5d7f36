package node

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Whatever the path of the program, the shell that runs token.sh runs just that program, with the
// arguments that it was given, and kubelet calls just that program.
func TestProgramOfAnyName(t *testing.T) {
	identity := func(c *config.Config) {
		c.Azure.BootstrapToken, c.Azure.KubeletCredential = nil, "token"
		c.Azure.ManagedIdentity = &config.ManagedIdentity{}
		c.Azure.Registries = []string{"*.azurecr.io"}
	}
	for _, name := range []string{
		"bin", "with space", "it's", `"quoted"`, "$HOME", "`id`", "a;b", "back\\slash", "# none",
		"key: value", "*", "ünï",
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), name)
			program := filepath.Join(dir, "aks-flex-node")
			script := filepath.Join(t.TempDir(), "token.sh")
			c, f, b := example{config: identity}.inputs()
			b.Program = program
			bound := Bind(Render(c, f), b)
			content := func(path string) []byte {
				return []byte(find(t, bound, state.PathKey(path)).Resource.(state.File).Content)
			}
			put := func(path string, text []byte) {
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, text, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			put(program, []byte("#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\"\n"))
			put(script, content("/var/lib/kubelet/token.sh"))
			provider := filepath.Join(t.TempDir(), imageCredentialName)
			put(provider, content(filepath.Join(imageCredentialDir, imageCredentialName)))
			if out, err := exec.Command(provider).CombinedOutput(); err != nil ||
				string(out) != program+"\nimage-credential\n" {
				t.Errorf("the provider of image credentials runs %q, %v", out, err)
			}
			out, err := exec.Command("sh", script, "--output", "a b", "").CombinedOutput()
			want := program + "\ntoken\n--output\na b\n\n"
			if diff := cmp.Diff(want, string(out)); err != nil || diff != "" {
				t.Errorf("token.sh: %v (-want +got):\n%s", err, diff)
			}

			var kubeconfig struct {
				Users []struct {
					User struct{ Exec struct{ Command string } }
				}
			}
			text, err := yaml.ToJSON(content(KubeconfigPath("/var/lib/kubelet")))
			if err == nil {
				err = json.Unmarshal(text, &kubeconfig)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := kubeconfig.Users[0].User.Exec.Command; got != program {
				t.Errorf("kubelet calls %q, want %q", got, program)
			}
		})
	}
}

// A token of digits stays a text.
func TestTokenOfDigits(t *testing.T) {
	c, f, b := example{}.inputs()
	b.BootstrapToken = "123456.1234567890123456"
	key := state.PathKey("/var/lib/kubelet/bootstrap-kubeconfig")
	file := find(t, Bind(Render(c, f), b), key).Resource.(state.File)
	is, err := clientcmd.Load([]byte(file.Content))
	if err != nil || is.AuthInfos["bootstrap"].Token != b.BootstrapToken.Reveal() {
		t.Errorf("%+v, %v", is, err)
	}
}
