package main

import (
	"os/exec"
	"strings"
	"testing"
)

// What a node reports cannot move the cursor of a terminal that shows a table.
func TestTablesArePlain(t *testing.T) {
	const script = `
import importlib.util, sys
spec = importlib.util.spec_from_file_location('f', 'azext_aks_flex_node/_format.py')
f = importlib.util.module_from_spec(spec)
spec.loader.exec_module(f)
bad = '\x1b[2J\u202e\nx'
node = {'name': 'n', 'properties': {'configVersion': '7', 'status': {
    'components': {'kubelet': bad}, 'lastSeen': bad,
    'conditions': [{'type': 'Ready', 'status': 'False', 'reason': bad}]}}}
row = f.node_table(node)
sys.stdout.write('|'.join(row.values()) + '|' + f.history_table([{'reason': bad}])[0]['Reason'])
found = {'findings': [{'verdict': 'ok'}, {'verdict': 'error', 'type': bad}]}
sys.stdout.write('|' + '|'.join(row['Condition'] for row in f.findings_table(found)))
`
	out, err := exec.Command("python3", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const clean = "?[2J??x"
	if want := "n||False (" + clean + ")|||" + clean + "|7|" + clean + "|" + clean + "|" + clean; string(out) != want {
		t.Errorf("%q; want %q", out, want)
	}
	if strings.ContainsAny(string(out), "\x1b\n") {
		t.Errorf("%q", out)
	}
}
