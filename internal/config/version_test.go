package config

import (
	"errors"
	"strings"
	"testing"
)

func TestSkew(t *testing.T) {
	for _, test := range []struct{ kubelet, server, want string }{
		{"1.33.5", "v1.33.2", ""}, // patch versions do not count
		{"1.30.14", "1.33.2", ""},
		{"v1.33.5", "v1.33.2+build.7", ""},
		{"1.33.5", "1.34", ""},
		{"1.34.4", "v1.33.2", "kubelet 1.34.4 with an API server of version 1.33.2: kubelet must " +
			"not be newer; set kubernetes.version to 1.33.z or older, or upgrade the cluster " +
			"first"},
		{"1.29.14", "v1.33.2", "kubelet 1.29.14 with an API server of version 1.33.2: kubelet " +
			"must not be more than 3 minor versions older; set kubernetes.version to 1.30.z or newer"},
		{"1.34.4", "unknown", `the API server's version "unknown"`},
		{"", "1.34.4", `kubelet ""`},
	} {
		err := Skew(test.kubelet, test.server)
		if (err == nil) != (test.want == "") ||
			err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s and %s: got %v, want %q", test.kubelet, test.server, err, test.want)
		}
	}
}

func TestKubernetesFor(t *testing.T) {
	known := []string{"1.33.8", "1.33.10", "v1.32.0", "1.34.4"}
	for server, want := range map[string]string{
		"v1.33.8":       "1.33.8",
		"1.33.9":        "1.33.8",
		"1.33.12":       "1.33.10",
		"1.32.1+vendor": "1.32.0",
		"1.35.0":        "1.34.4",
		"1.37.0":        "1.34.4",
	} {
		if got, err := KubernetesFor(server, known); got != want || err != nil {
			t.Errorf("an API server of %s gets %q (%v), want %s", server, got, err, want)
		}
	}
	for server, want := range map[string]string{
		"1.31.9": "known are 1.33.10, 1.33.8, 1.34.4, v1.32.0; set kubernetes.version",
		"1.38.0": "for an API server of version 1.38.0",
		"?":      "set kubernetes.version",
	} {
		got, err := KubernetesFor(server, known)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an API server of %s gets %q (%v), want %q", server, got, err, want)
		}
	}
}

func TestWithKubernetes(t *testing.T) {
	open, _ := parseOK(t, tokenDocument(t).with(t, `{"containerd": {"version": "1.7.30"}}`))
	if open.Kubernetes.Version != "" {
		t.Errorf("a version that is left open is %q", open.Kubernetes.Version)
	}
	c, err := open.WithKubernetes("v1.35.1")
	if err != nil || c.Kubernetes.Version != "1.35.1" || open.Kubernetes.Version != "" {
		t.Errorf("with 1.35.1: %v, %q; the original has %q", err, c.Kubernetes.Version,
			open.Kubernetes.Version)
	}
	written := parseBad(t, tokenDocument(t).with(t, `{
		"kubernetes": {"version": "1.36.0"}, "containerd": {"version": "1.7.30"}
	}`).bytes(t))
	for version, want := range map[string]string{
		"1.36.0": written.Error(),
		"1.28.0": `kubernetes.version: "1.28.0" is not allowed: ` +
			`must be a version x.y.z, 1.29.0 or later`,
	} {
		_, err := open.WithKubernetes(version)
		if problems, ok := errors.AsType[Problems](err); !ok || problems.Error() != want {
			t.Errorf("with %s: got %v, want %s", version, err, want)
		}
	}
}

// TestOpenVersionIsChecked holds that what does not depend on the version is checked without it.
func TestOpenVersionIsChecked(t *testing.T) {
	problems := parseBad(t, tokenDocument(t).with(t, `{
		"kubernetes": {"version": "", "urlTemplate": "https://a.example/v{version}/arm64"}
	}`).bytes(t))
	if len(problems) != 1 || problems[0].Path != "kubernetes.urlTemplate" {
		t.Errorf("got %v", problems)
	}
}
