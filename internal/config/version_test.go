package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestWithKubernetes(t *testing.T) {
	open, _ := parseOK(t, tokenDocument(t).with(t, `{"containerd": {"version": "1.7.34"}}`))
	if open.Kubernetes.Version != "" {
		t.Errorf("a version that is left open is %q", open.Kubernetes.Version)
	}
	c, _, err := open.WithKubernetes("v1.35.1")
	if err != nil || c.Kubernetes.Version != "1.35.1" || open.Kubernetes.Version != "" {
		t.Errorf("with 1.35.1: %v, %q; the original has %q", err, c.Kubernetes.Version,
			open.Kubernetes.Version)
	}
	if v := c.Containerd.Version; v != "1.7.34" {
		t.Errorf("with 1.35.1 containerd is %q", v)
	}
	written := parseBad(t, tokenDocument(t).with(t, `{
		"kubernetes": {"version": "1.36.0"}, "containerd": {"version": "1.7.34"}
	}`).bytes(t))
	for version, want := range map[string]string{
		"1.36.0": written.Error(),
		"1.28.0": `kubernetes.version: "1.28.0" is not allowed: ` +
			`must be a version x.y.z, 1.29.0 or later`,
	} {
		_, _, err := open.WithKubernetes(version)
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

// TestOpenVersionsFollowKubernetes holds that what depends on the version of Kubernetes is chosen
// with it, be it written or chosen later, and that what is written stays.
func TestOpenVersionsFollowKubernetes(t *testing.T) {
	open, _ := parseOK(t, tokenDocument(t))
	if open.Containerd.Version != "" || open.Runc.Version != "" || open.CNI.Version == "" ||
		open.NPD.Version == "" {
		t.Errorf("without a version of Kubernetes: %v", open.versions())
	}
	for kubernetes, want := range map[string][2]string{
		"1.34.4": {"2.3.", "1.4."}, "1.36.0": {"2.3.", "1.4."},
	} {
		chosen, _, err := open.WithKubernetes(kubernetes)
		if err != nil {
			t.Fatal(err)
		}
		written, _ := parseOK(t, tokenDocument(t).with(t,
			`{"kubernetes": {"version": "`+kubernetes+`"}}`))
		for how, c := range map[string]Config{"chosen": chosen, "written": written} {
			if !strings.HasPrefix(c.Containerd.Version, want[0]) ||
				!strings.HasPrefix(c.Runc.Version, want[1]) {
				t.Errorf("%s, %s: containerd %s, runc %s, want %v", kubernetes, how,
					c.Containerd.Version, c.Runc.Version, want)
			}
		}
	}
	c, _ := parseOK(t, tokenDocument(t).with(t, `{
		"kubernetes": {"version": "1.36.0"}, "runc": {"version": "1.3.5"}
	}`))
	if c.Runc.Version != "1.3.5" {
		t.Errorf("a runc that is written is %s", c.Runc.Version)
	}
}

// TestWarningsOfAnOpenVersion holds that a document that leaves the version of Kubernetes open gets
// the warnings of one with the same version.
func TestWarningsOfAnOpenVersion(t *testing.T) {
	for kubernetes, want := range map[string]int{"1.36.4": 1, "1.34.4": 0} {
		const containerd = `{"containerd": {"version": "2.1.9"}}`
		open, early := parseOK(t, tokenDocument(t).with(t, containerd))
		_, got, err := open.WithKubernetes(kubernetes)
		if err != nil {
			t.Fatal(err)
		}
		_, written := parseOK(t, tokenDocument(t).with(t, containerd).with(t,
			`{"kubernetes": {"version": "`+kubernetes+`"}}`))
		if len(early) != 0 || len(got) != want || !slices.Equal(got, written) {
			t.Errorf("%s: %v, and %v where it is written", kubernetes, got, written)
		}
	}
}

// TestPreReleasesAreNotTheirReleases holds that a bound which a release is at is not reached by its
// pre-releases.
func TestPreReleasesAreNotTheirReleases(t *testing.T) {
	for _, patch := range []string{
		`{"kubernetes": {"version": "1.29.0-rc.1"}}`, `{"cni": {"version": "1.3.0-rc.1"}}`,
	} {
		if problems := parseBad(t, tokenDocument(t).with(t, patch).bytes(t)); len(problems) != 1 {
			t.Errorf("%s: %v", patch, problems)
		}
	}
	rc := tokenDocument(t).with(t, `{"runc": {"version": "1.4.0-rc.1"}}`)
	if problems := parseBad(t, rc.bytes(t)); len(problems) != 1 || problems[0].Path != "runc.version" {
		t.Errorf("a runc with holes: %v", problems)
	}
}

// A version with which a container can break out is refused, unless that is allowed or it is what
// the machine runs: then it is warned of.
func TestVulnerableVersions(t *testing.T) {
	for path, patch := range map[string]string{
		"runc.version":       `{"runc": {"version": "1.3.2"}}`,
		"containerd.version": `{"containerd": {"version": "2.3.1"}}`,
	} {
		d := tokenDocument(t).with(t, patch)
		problems := parseBad(t, d.bytes(t))
		if len(problems) != 1 || problems[0].Path != path ||
			!strings.HasSuffix(problems[0].Message, ", or set artifacts.allowVulnerable") {
			t.Errorf("%s: %v", patch, problems)
		}
		before, warnings := parseOK(t, d.with(t, `{"artifacts": {"allowVulnerable": true}}`))
		told := func(w []Warning) bool {
			return slices.ContainsFunc(w, func(w Warning) bool {
				return w.Path == path && strings.Contains(w.Message, "lets a container break out (CVE-")
			})
		}
		if !told(warnings) {
			t.Errorf("%s is allowed: %v", patch, warnings)
		}
		name, _, _ := strings.Cut(path, ".")
		own, warnings := parseOK(t, d.with(t, `{"artifacts": {"overrides": {"`+name+
			`": {"sha256": "`+strings.Repeat("a", 64)+`"}}}}`))
		if told(warnings) || own.Artifacts.AllowVulnerable {
			t.Errorf("%s is a build of its owner: %v", patch, warnings)
		}
		host := testHost()
		host.Before = &before
		if read, err := Parse(d.bytes(t), host); err != nil || !told(read.Warnings) {
			t.Errorf("%s runs already: %v, %v", patch, err, read.Warnings)
		}
	}
}

// TestNewerThanKnown holds that a release branch which came out after this program is refused with
// the reason, unless it runs already, as after a downgrade of the program.
func TestNewerThanKnown(t *testing.T) {
	for patch, want := range map[string]string{
		`{"kubernetes": {"version": "1.37.0"}}`: "must be 1.36.z or older",
		`{"containerd": {"version": "2.4.0"}}`:  "must be 2.3.z or older",
	} {
		d := tokenDocument(t).with(t, patch)
		if _, err := Parse(d.bytes(t), testHost()); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", patch, err)
		}
	}
	before := &Config{}
	before.Kubernetes.Version, before.Containerd.Version = "1.37.0", "2.4.0"
	both := tokenDocument(t).with(t,
		`{"kubernetes": {"version": "1.37.0"}, "containerd": {"version": "2.4.0"}}`)
	host := Host{HostName: "x", Arch: "amd64", Before: before}
	if read, err := Parse(both.bytes(t), host); err != nil || len(read.Warnings) != 2 {
		t.Errorf("what runs already: %v, %v", err, read.Warnings)
	}
}

// TestVersionAdvice holds that versions which work, but are older than what their projects advise,
// are warned of and accepted.
func TestVersionAdvice(t *testing.T) {
	for patch, want := range map[string]string{
		`{"kubernetes": {"version": "1.36.4"}, "containerd": {"version": "2.1.9"}}`: "containerd." +
			"version: containerd 2.1.9 is older than what its project recommends for " +
			"Kubernetes 1.36: 2.3.0+, 2.2.0+",
		`{"runc": {"version": "1.3.2"}, "artifacts": {"allowVulnerable": true}}`: "runc.version: " +
			"runc 1.3.2 lets a container break out",
		`{"kubernetes": {"version": "1.36.4"}}`: "",
	} {
		_, warnings := parseOK(t, tokenDocument(t).with(t, patch))
		var got string
		for _, w := range warnings {
			got += w.Path + ": " + w.Message
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", patch, got, want)
		}
	}
}
