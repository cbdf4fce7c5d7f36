package e2e

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// automated is a machine that an automation example joins.
type automated struct {
	example, node string
	packages      []string
	// run runs the unchanged example with a URL and returns its output and exit code.
	run func(t *testing.T, m lab.Machine, text, url string) (out string, code int)
	// again reports whether it can run again on a node as a no-op.
	again bool
}

// The Ansible and cloud-init examples join a machine, and fail with the join's error if the URL is
// dead. A second run of Ansible is a no-op.
func examplesJoin(t *testing.T) {
	t.Parallel()
	for _, a := range []automated{
		{"ansible/join.yml", "ansible-1", []string{"ansible-core"}, runAnsible, true},
		{"cloud-init/join.yaml", "cloudinit-1", []string{"cloud-init"}, runCloudInit, false},
	} {
		t.Run(a.node, func(t *testing.T) {
			t.Parallel()
			m := bareMachine(t, a.node, a.packages...)
			if err := bench.Install(m, agent); err != nil {
				t.Fatal(err)
			}
			output(t, m, "systemctl", "daemon-reload")
			text, err := os.ReadFile("../../examples/" + a.example)
			if err != nil {
				t.Fatal(err)
			}
			url := created(t, m.Name, desired{"versions": lab.Newest.Desired()})
			_, signature, _ := strings.Cut(url, "sig=")
			dead := strings.Replace(url, "se=2", "se=1", 1)
			out, code := a.run(t, m, string(text), dead)
			if code == 0 || !strings.Contains(out, "regenerateToken") || strings.Contains(out, signature) {
				t.Errorf("with a dead URL: exit code %d\n%s", code, out)
			}
			out, code = a.run(t, m, string(text), url)
			if code != 0 || strings.Contains(out, signature) {
				t.Fatalf("exit code %d\n%s", code, out)
			}
			must(t, m, "status")
			if a.again {
				if out, code = a.run(t, m, string(text), dead); code != 0 {
					t.Errorf("on a node: exit code %d\n%s", code, out)
				}
			}
			must(t, m, "unbootstrap", "--yes")
			rp(t, 200, http.MethodDelete, rpNode(m.Name), nil)
		})
	}
}

// runAnsible runs the playbook on the machine itself.
func runAnsible(t *testing.T, m lab.Machine, text, url string) (string, int) {
	t.Helper()
	writeIn(t, m, "/root/join.yml", text)
	writeIn(t, m, "/root/inventory", m.Name+" ansible_connection=local ansible_user=root config_url='"+
		url+"'\n")
	return inside(t, m, "sh", "-c", "cd /root && ansible-playbook -i inventory join.yml 2>&1; "+
		"code=$?; rm inventory; exit $code")
}

// runCloudInit runs the real cloud-init with the user data, as at a machine's first boot, but only
// the modules that the example needs: others would change the machine's network.
func runCloudInit(t *testing.T, m lab.Machine, text, url string) (string, int) {
	t.Helper()
	const seed = "/var/lib/cloud/seed/nocloud/"
	writeIn(t, m, "/etc/cloud/cloud.cfg", "datasource_list: [NoCloud]\nnetwork: {config: disabled}\n"+
		"preserve_hostname: true\ncloud_init_modules: [write-files]\ncloud_config_modules: [runcmd]\n"+
		"cloud_final_modules: [scripts-user]\n")
	output(t, m, "sh", "-c", "cloud-init clean --logs && mkdir -p "+seed)
	writeIn(t, m, seed+"user-data", strings.Replace(text, `"CONFIG_URL"`, `"`+url+`"`, 1))
	writeIn(t, m, seed+"meta-data", "instance-id: "+m.Name+"\n")
	return inside(t, m, "sh", "-c", "cloud-init init --local; cloud-init init; "+
		"cloud-init modules --mode=config; cloud-init modules --mode=final; cloud-init status --wait; "+
		"code=$?; rm -rf /var/lib/cloud/seed; exit $code")
}
