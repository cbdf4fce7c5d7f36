package node

import (
	"strings"
	"testing"
)

// Kubelets of all versions behave as those before 1.35: images that are there are for every pod, for
// which older ones have no setting, and events have the same rate.
func TestKubeletsBehaveAlike(t *testing.T) {
	for version, has := range map[string]bool{
		"1.29.0": false, "1.34.9": false, "1.35.0": true, "1.36.3": true, "1.37.1": true, "": false,
	} {
		c := base()
		c.Kubernetes.Version = version
		p := &part{config: c}
		text := p.kubeletConfiguration()
		const policy = `"imagePullCredentialsVerificationPolicy": "NeverVerify"`
		if got := strings.Contains(text, policy); got != has {
			t.Errorf("%s has the setting: %v", version, got)
		}
		if !strings.Contains(text, `"eventRecordQPS": 5,`) {
			t.Errorf("%s: another rate of events", version)
		}
	}
}
