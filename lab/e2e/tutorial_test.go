package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/images"
)

// The commands of docs/tutorial.md, in order, with the real az and kubectl: the operator's and the
// machine's, on the same machine here.
func tutorial(t *testing.T, m lab.Machine) {
	text, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```bash( machine)?\n(.*?)^```$").FindAllStringSubmatch(
		string(text), -1)
	if len(blocks) < 12 {
		t.Fatalf("docs/tutorial.md has %d blocks", len(blocks))
	}
	operates(t, m)
	if err := bench.Install(m, agent); err != nil {
		t.Fatal(err)
	}
	output(t, m, "systemctl", "daemon-reload")
	before := snapshot(t.Context(), t, m)
	for _, b := range blocks {
		script := inOperatorsShell + b[2] + "export -p > env\n"
		if b[1] != "" { // it may read the URL
			script = "{ " + b[2] + "} < <(. " + operatorsHome + "/env; echo $URL)\n"
		}
		t.Logf("%s", b[2])
		if out, code := inside(t, m, "bash", "-eo", "pipefail", "-c", script); code != 0 {
			t.Fatalf("exit code %d\n%s", code, out)
		} else if b[1] == "" {
			t.Logf("%s", out)
		}
	}
	same(t, before, snapshot(t.Context(), t, m))
}

// operatorsHome is the operator's directory; a snapshot does not include it.
const operatorsHome = "/var/tmp/operator"

// inOperatorsShell precedes a block of the operator: it sets the exported variables, also those of
// previous blocks.
const inOperatorsShell = "set -a; export HOME=" + operatorsHome + " PATH=" + operatorsHome +
	":$PATH; cd $HOME; . ./env\n"

// operates makes a machine an operator's computer: az, logged in, kubectl, and the variables that
// the tutorial requires.
func operates(t *testing.T, m lab.Machine) {
	t.Helper()
	who, err := bench.Azure()
	if err != nil {
		t.Fatal(err)
	}
	const trusted = "/etc/ssl/certs/ca-certificates.crt"
	var env strings.Builder
	for name, is := range map[string]string{
		"REQUESTS_CA_BUNDLE": trusted, "FLEXLAB_CA": trusted, "FLEXLAB_ARM": lab.AzureURL,
		"CLUSTER": lab.ClusterID, "PROVIDER": lab.ProviderURL, "TENANT": lab.Tenant,
		"AUDIENCE":  "api://" + who.Provider.ClientID,
		"CLIENT_ID": who.Node.ClientID, "CLIENT_SECRET": who.Node.Secret, "IMAGE": images.Hello,
		"KUBECONFIG": operatorsHome + "/admin.kubeconfig", "KUBECACHEDIR": operatorsHome + "/cache",
	} {
		fmt.Fprintf(&env, "export %s='%s'\n", name, is)
	}
	for name, data := range map[string][]byte{
		"env": []byte(env.String()), "admin.kubeconfig": file(t, bench.Kubeconfig()),
		"kubectl": file(t, bench.Dir, "kubectl"),
	} {
		if err := bench.Write(m, operatorsHome+"/"+name, 0o700, data); err != nil {
			t.Fatal(err)
		}
	}
	login := inOperatorsShell + loginCLI + "az login --service-principal -u " +
		who.Operator.ClientID + " -p " + who.Operator.Secret + " --tenant " + lab.Tenant + " -o none\n"
	if out, code := inside(t, m, "bash", "-c", login); code != 0 {
		t.Fatalf("az login: %s", out)
	}
}
