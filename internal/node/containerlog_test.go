package node

import (
	"strings"
	"testing"
)

// The logs of containers are rotated as the owner says, else as kubelet does by default.
func TestContainerLogs(t *testing.T) {
	c := base()
	if text := text(Render(c, facts())); strings.Contains(text, "containerLogMax") {
		t.Error("kubelet's defaults are spelled out")
	}
	files := 3
	c.Node.Kubelet.ContainerLogMaxSize, c.Node.Kubelet.ContainerLogMaxFiles = "2Mi", &files
	rendered := text(Render(c, facts()))
	for _, want := range []string{`"containerLogMaxSize": "2Mi"`, `"containerLogMaxFiles": 3`} {
		if !strings.Contains(rendered, want) {
			t.Errorf("%s is not there", want)
		}
	}
}
