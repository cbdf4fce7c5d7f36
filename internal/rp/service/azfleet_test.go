package service

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// table runs a command with -o table of at most 120 columns, and returns each row's words.
func (w *azWorld) table(command string) string {
	w.t.Helper()
	var rows []string
	for line := range strings.Lines(w.must("az aks flex-node " + command + " -o table")) {
		if line = strings.TrimRight(line, "\n"); len(line) > 120 {
			w.t.Errorf("%s: %d columns\n%s", command, len(line), line)
		}
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(rows, "\n")
}

// waits runs a command until its table has a text.
func (w *azWorld) waits(command, want string) {
	w.t.Helper()
	table := ""
	for range 40 {
		if table = w.table(command); strings.Contains(table, want) {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	w.t.Fatalf("%s has no %q:\n%s", command, want, table)
}

// fleet follows a change that waits while its cluster or its node is paused, continues, fails, and
// is allowed again. The operator reports as the node, which is an Arc machine.
func (w *azWorld) fleet(t *testing.T) {
	const report = `az rest --method post --resource $ARM/ -o none --url "$ARM` + azCluster +
		`/flexNodeConfig/fleet-1/reportStatus?api-version=2026-05-01-preview" \
  --headers x-ms-flexnode-uid=$(cat uid) Content-Type=application/json --body `
	version := func() string {
		return w.must("az aks flex-node show $G -n fleet-1 --query properties.configVersion -o tsv")
	}
	w.must("az aks flex-node create $G -n fleet-1 --auth-method arc " +
		"--query properties.resourceUid -o tsv >uid")
	w.ready("fleet-1")
	first := version()
	w.must(report + `'{"appliedConfigVersion": "` + first + `"}'`)
	w.fails("az aks flex-node allow-versions $G",
		"Every node of the cluster that has tried this change is well")
	has(t, "what pause prints", w.table("pause $G"), "\nmy-cluster cluster True")
	w.must("az aks flex-node update $G -n fleet-1 -m 44 -o none")
	second := version()
	has(t, "what diff prints", w.table("diff $G -n fleet-1"), "node.maxPods 110 44 restart")
	equal(t, "diff of one with itself", w.must("az aks flex-node diff $G -n fleet-1 --from "+second+
		" --to "+second+" --query '[disruption, length(changes)]' -o tsv | tr '\\n' ' '"), "none 0")
	w.waits("summary $G", "1 held: Paused")
	w.must("az aks flex-node pause $G -n fleet-1 -o none; az aks flex-node resume $G -o none")
	w.waits("summary $G", "waiting change")
	if got := w.table("summary $G"); strings.Contains(got, "held:") ||
		strings.Contains(got, "trying") {
		t.Errorf("with the node paused:\n%s", got)
	}
	if got := w.table("resume $G -n fleet-1"); !strings.Contains(got, "\nfleet-1 node False") ||
		version() != second {
		t.Errorf("resume prints\n%s\nversion %s, before %s", got, version(), second)
	}
	w.waits("summary $G", "1 trying")
	w.must(report + `'{"appliedConfigVersion": "` + first + `", "config": {"failed": {"version": "` +
		second + `", "reason": "HealthFailed"}}}'`)
	w.waits("summary $G", "held: CanaryFailed; 1 failed")
	has(t, "what allow-versions prints", w.table("allow-versions $G --failures 2 --for PT4H"),
		"CanaryFailed node.maxPods=44")
	w.table("show $G -n fleet-1")
	w.table("list $G")
	w.table("history $G -n fleet-1")
}

// Invalid uses of the commands about a fleet.
func (w *azWorld) fleetRefusals(t *testing.T) {
	w.must("az aks flex-node create $G -n fleet-2 -o none")
	w.refused([]refusal{
		{"", "allow-versions $G --for 4h", "'4h' is not a duration of ISO 8601"},
		{"stranger", "pause $G", "'Microsoft.ContainerService/managedClusters/read'"},
		{"stranger", "summary $G", "summarizeFlexNodes/action'"},
		{"", "diff $G -n fleet-2 --from 1", "configVersion 1 does not belong to the node"},
		{"stranger", "replace $G -n fleet-2 --yes", "regenerateToken/action'"},
		{"stranger", "resume $G -n fleet-2", "flexNodeConfig/read'"},
		{"stranger", "allow-versions $G", "allowVersions/action'"},
		{"stranger", "diff $G -n fleet-2", "diff/action'"},
		{"", "summary -g my-rg -c no-cluster", "no-cluster"},
	})
	for _, command := range []string{"pause $G -n none", "resume -g my-rg -c no-cluster"} {
		if _, errors, code := w.run("az aks flex-node " + command); code != 3 {
			t.Errorf("%s: exit code %d\n%s", command, code, errors)
		}
	}
}

// A new machine takes a node over with a URL that is in no message, and with a command without it.
func (w *azWorld) replaced(t *testing.T) {
	const command = "sudo aks-flex-node agent --config-url-file -"
	former := w.must("az aks flex-node create $G -n spare-1 --output-url -o tsv " +
		"--query properties.configUrl")
	w.fails("az aks flex-node replace $G -n spare-1", "--yes")
	out, errors, code := w.run("az aks flex-node replace $G -n spare-1 --yes")
	var issued struct{ ConfigURL, Command string }
	if err := json.Unmarshal([]byte(out), &issued); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out, errors)
	}
	if issued.Command != command || !strings.Contains(errors, command) ||
		strings.Contains(errors, issued.ConfigURL) || issued.ConfigURL == former {
		t.Errorf("replace prints\n%s%s", out, errors)
	}
	w.fetch(former, 403)
	w.fetch(issued.ConfigURL, 200)
	w.table("replace $G -n spare-1 --yes")
	w.table("rotate-token $G -n spare-1")
}

// The identity of a node: a machine that is connected to Arc as it joins, and another identity.
func (w *azWorld) identities(t *testing.T) {
	write(t, w.dir, "onboard.txt", "canary-of-onboarding")
	const (
		app    = "11111111-2222-3333-4444-555555555555"
		create = "az aks flex-node create $G -n arc-1 --auth-method arc --use-azure-auth true " +
			"--kubelet-credential token --auto-role-assignment true --onboarding-client-id " + app
	)
	w.fails(create, "needs --onboarding-secret without a terminal.")
	for _, step := range []struct{ script, want string }{
		{create + " --onboarding-secret @onboard.txt --query properties.azureAuth -o json | tr -d ' \n'",
			`{"arc":{"autoRoleAssignment":true,"onboarding":{"clientId":"` + app + `"}},"method":"arc"}`},
		{"az aks flex-node update $G -n arc-1 --auto-role-assignment false --onboarding-tenant " + app +
			" --query 'properties.azureAuth.arc.[autoRoleAssignment,onboarding.clientTenant]' -o tsv |" +
			" tr '\n' ' '", "None " + app},
		{"az aks flex-node update $G -n arc-1 --auth-method managedIdentity --principal-id " + app +
			" --query properties.azureAuth -o json | tr -d ' \n'",
			`{"managedIdentity":{"principalId":"` + app + `"},"method":"managedIdentity"}`},
	} {
		equal(t, step.script, w.must(step.script), step.want)
	}
	w.fails("az aks flex-node update $G -n arc-1 --onboarding-client-id "+app,
		"--onboarding-client-id goes with --auth-method arc only.")
}

// az asks before a node stops following its resource, for any option that does that.
func (w *azWorld) unfollowed(t *testing.T) {
	w.must("az aks flex-node create $G -n alone-1 -o none")
	const update = "az aks flex-node update $G -n alone-1 "
	w.fails(update+"--follow false", "Use --yes.")
	w.fails(update+"--set properties.continuousMonitoring=false", "Use --yes.")
	const follows = " --query properties.continuousMonitoring -o tsv"
	for _, step := range []struct{ script, want string }{
		{"az aks flex-node show $G -n alone-1" + follows, "true"},
		{update + "--follow false --yes" + follows, "false"},
		{update + "-m 50" + follows, "false"},
	} {
		equal(t, step.script, w.must(step.script), step.want)
	}
}
