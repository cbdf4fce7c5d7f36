package demo

import "testing"

// Other programs parse the last line.
func TestLastLine(t *testing.T) {
	for want, n := range map[string]Numbers{
		"demo join_s=4.2; services ok; dns ok": {Join: 4.21},
		"demo join_s=4.2 label_s=0.5 kubelet_down_s=0.8 containers_restarted=0 drain_upgrade_s=13.4 " +
			"rollback_s=5.9 clean=true; services ok; dns ok": {
			Join: 4.21, Label: 0.51, KubeletDown: 0.8, Drain: 13.4, Rollback: 5.9, Clean: true,
			lived: true,
		},
	} {
		if got := n.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
