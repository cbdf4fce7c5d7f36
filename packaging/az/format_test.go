package main

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// python runs a script with the module of tables as f and returns its output.
func python(t *testing.T, script string) string {
	t.Helper()
	const load = `
import importlib.util, sys
spec = importlib.util.spec_from_file_location('f', 'azext_aks_flex_node/_format.py')
f = importlib.util.module_from_spec(spec)
spec.loader.exec_module(f)
`
	out, err := exec.Command("python3", "-c", load+script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// A node's report cannot move the cursor of the terminal that shows a table.
func TestTablesArePlain(t *testing.T) {
	out := python(t, `
bad = '\x1b[2J\u202e\nx'
node = {'name': 'n', 'properties': {'configVersion': '7', 'status': {
    'components': {'kubelet': bad}, 'lastSeen': bad,
    'conditions': [{'type': 'Ready', 'status': 'False', 'reason': bad}]}}}
row = f.node_table(node)
sys.stdout.write('|'.join(row.values()) + '|' + f.history_table([{'reason': bad}])[0]['Reason'])
found = {'findings': [{'verdict': 'ok'}, {'verdict': 'error', 'type': bad}]}
sys.stdout.write('|' + '|'.join(row['Condition'] for row in f.findings_table(found)))
`)
	const clean = "?[2J??x"
	if want := "n||" + clean + "|||" + clean + "|" + clean + "|" + clean + "|" + clean; out != want {
		t.Errorf("%q; want %q", out, want)
	}
	if strings.ContainsAny(out, "\x1b\n") {
		t.Errorf("%q", out)
	}
}

// Table rows fit in 120 columns, however long the values are, with two spaces between columns.
func TestTablesFit(t *testing.T) {
	out := python(t, `
from collections import defaultdict
class Long(defaultdict):
    """An answer of which each member is as long as can be."""
    def __init__(self): super().__init__(lambda: 'x' * 300)
    def get(self, name, other=None): return self[name]
    def __bool__(self): return True
node = Long()
node['properties'] = properties = Long()
properties['status'] = status = Long()
properties['versions'] = properties['config'] = status['components'] = Long()
properties['config']['kubernetes'] = properties['upgradePolicy'] = Long()
status['conditions'] = [{'type': kind, 'status': 'False', 'reason': 'x' * 300}
                        for kind in ('Ready', 'UpToDate')]
summary = Long()
summary['nodes'] = 100000
for name in ('states', 'versions', 'conditions', 'changes'):
    summary[name] = [Long()]
diff = Long()
diff['changes'] = [Long()]
for table in (f.node_table(node), f.history_table([Long()]), f.diff_table(diff),
              f.changes_table([Long()]), f.summary_table(summary), f.paused_table(node),
              f.issued_table(Long())):
    rows = table if isinstance(table, list) else [table]
    widths = [max([len(name)] + [len(row[name]) for row in rows]) for name in rows[0]]
    print(sum(widths) + 2 * (len(widths) - 1), *rows[0])
`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, line := range lines {
		width, _, _ := strings.Cut(line, " ")
		if n, err := strconv.Atoi(width); err != nil || n > 120 || n < 40 {
			t.Errorf("columns: %s", line)
		}
	}
	if len(lines) != 7 {
		t.Errorf("tables:\n%s", out)
	}
}

// The time since a machine's last report has one unit.
func TestAges(t *testing.T) {
	out := python(t, `
from datetime import datetime, timedelta, timezone
for seconds in (-5, 125, 7300, 200000):
    then = datetime.now(timezone.utc) - timedelta(seconds=seconds)
    print(f._age(then.strftime('%Y-%m-%dT%H:%M:%SZ')), end=' ')
print(f._age(None), f._age('soon'))
`)
	if want := "0s 2m 2h 2d None soon\n"; out != want {
		t.Errorf("%q; want %q", out, want)
	}
}
