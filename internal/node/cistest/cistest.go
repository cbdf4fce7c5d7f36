// Package cistest checks section 4 of the CIS Kubernetes Benchmark 1.12, about worker nodes, as a
// scanner does: from files in its well-known places, and from kubelet's command line. Tests apply
// it to a rendered node and to a machine of the laboratory.
package cistest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Machine gives a scanner access to a machine.
type Machine struct {
	// File returns a file; ok is false if it does not exist.
	File func(path string) (f File, ok bool)
	// Kubelet is kubelet's command line; Proxy that of a kube-proxy, "" if none runs.
	Kubelet, Proxy string
}

// File is a file's content and metadata.
type File struct {
	Mode     fs.FileMode
	UID, GID int
	Content  string
}

// Verdict is the result of one recommendation.
type Verdict string

// The verdicts. A manual recommendation warns instead of failing.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
	Warn Verdict = "warn"
)

// Result is the verdict on one recommendation.
type Result struct {
	ID, Text string
	Verdict  Verdict
}

// recommendation is one of the benchmark, in our words, with the verdict if it does not hold.
type recommendation struct {
	id, text  string
	otherwise Verdict
	holds     func(scan) bool
}

// The places that scanners search, the most usual first.
var (
	unitFiles = []string{
		"/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
		"/etc/systemd/system/kubelet.service", "/lib/systemd/system/kubelet.service",
	}
	kubeconfigs = []string{
		"/etc/kubernetes/kubelet.conf", "/etc/kubernetes/kubelet-kubeconfig.conf",
		"/var/lib/kubelet/kubeconfig",
	}
	configurations = []string{
		"/etc/kubernetes/kubelet-config.yaml", "/var/lib/kubelet/config.yaml",
	}
	proxyKubeconfigs = []string{
		"/etc/kubernetes/proxy.conf", "/var/lib/kube-proxy/kubeconfig",
		"/var/lib/kubelet/kube-proxy-kubeconfig.conf",
	}
	authorities = []string{"/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/certs/ca.crt"}
)

// ciphers are the names that 4.2.12 lists.
var ciphers = []string{
	"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
	"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
}

// recommendations are section 4 of the benchmark.
var recommendations = []recommendation{
	{"4.1.1", "kubelet's unit file is 0600 or stricter", Fail, within(unitFiles, 0o600)},
	{"4.1.2", "kubelet's unit file is root's", Fail, rooted(unitFiles)},
	{"4.1.3", "kube-proxy's kubeconfig is 0600 or stricter", Warn, within(proxyKubeconfigs, 0o600)},
	{"4.1.4", "kube-proxy's kubeconfig is root's", Warn, rooted(proxyKubeconfigs)},
	{"4.1.5", "kubelet's kubeconfig is 0600 or stricter", Fail, within(kubeconfigs, 0o600)},
	{"4.1.6", "kubelet's kubeconfig is root's", Fail, rooted(kubeconfigs)},
	{"4.1.7", "the clients' CA is 0644 or stricter", Warn, within(authorities, 0o644)},
	{"4.1.8", "the clients' CA is root's", Warn, rooted(authorities)},
	{"4.1.9", "kubelet's configuration is 0600 or stricter", Fail, within(configurations, 0o600)},
	{"4.1.10", "kubelet's configuration is root's", Fail, rooted(configurations)},
	{"4.2.1", "anonymous requests are refused", Fail,
		setting("anonymous-auth", "authentication.anonymous.enabled",
			func(anonymous string, _ bool) bool { return anonymous == "false" })},
	{"4.2.2", "requests are authorised", Fail,
		setting("authorization-mode", "authorization.mode", func(mode string, set bool) bool {
			return set && !strings.Contains(mode, "AlwaysAllow")
		})},
	{"4.2.3", "clients' certificates are verified", Fail,
		setting("client-ca-file", "authentication.x509.clientCAFile", given)},
	{"4.2.4", "there is no port without authentication", Warn,
		setting("read-only-port", "readOnlyPort", unsetOr("0"))},
	{"4.2.5", "idle streams end", Warn,
		setting("streaming-connection-idle-timeout", "streamingConnectionIdleTimeout",
			func(idle string, _ bool) bool { return idle != "0" && idle != "0s" })},
	{"4.2.6", "kubelet makes its iptables chains", Fail,
		setting("make-iptables-util-chains", "makeIPTablesUtilChains", unsetOr("true"))},
	{"4.2.7", "the Node has the machine's name", Warn,
		setting("hostname-override", "", func(_ string, set bool) bool { return !set })},
	{"4.2.8", "events are recorded as they come", Warn, setting("event-qps", "eventRecordQPS",
		func(rate string, _ bool) bool { return !strings.HasPrefix(rate, "-") })},
	{"4.2.9", "kubelet serves with a certificate that was made for it", Warn, func(s scan) bool {
		return setting("tls-cert-file", "tlsCertFile", given)(s) &&
			setting("tls-private-key-file", "tlsPrivateKeyFile", given)(s)
	}},
	{"4.2.10", "kubelet's client certificate is rotated", Fail,
		setting("rotate-certificates", "rotateCertificates", unsetOr("true"))},
	{"4.2.11", "rotation of the serving certificate is not turned off", Warn,
		setting("", "featureGates.RotateKubeletServerCertificate", unsetOr("true"))},
	{"4.2.12", "only strong cipher suites are used", Warn,
		setting("tls-cipher-suites", "tlsCipherSuites", func(suites string, set bool) bool {
			return set && !slices.ContainsFunc(strings.Fields(strings.Trim(suites, "[]")),
				func(suite string) bool { return !slices.Contains(ciphers, suite) })
		})},
	{"4.2.13", "the processes of a pod are limited", Warn,
		setting("pod-max-pids", "podPidsLimit", given)},
	{"4.2.14", "containers have a seccomp profile", Warn,
		setting("seccomp-default", "seccompDefault", given)},
	{"4.3.1", "kube-proxy's metrics are for this machine only", Fail, func(s scan) bool {
		_, address, given := strings.Cut(s.machine.Proxy, "--metrics-bind-address=")
		return !given || strings.HasPrefix(address, "127.0.0.1")
	}},
}

// Evaluate checks a machine, whose kubelet configuration must be in our format.
func Evaluate(m Machine) ([]Result, error) {
	s := scan{machine: m, settings: map[string]any{}}
	if f, ok := s.first(configurations); ok {
		_, text, _ := strings.Cut(f.Content, "\n") // the first line is a comment, the rest is JSON
		if err := json.Unmarshal([]byte(text), &s.settings); err != nil {
			return nil, fmt.Errorf("cannot read kubelet's configuration: %w", err)
		}
	}
	var results []Result
	for _, r := range recommendations {
		verdict := r.otherwise
		if r.holds(s) {
			verdict = Pass
		}
		results = append(results, Result{ID: r.id, Text: r.text, Verdict: verdict})
	}
	return results, nil
}

// Summary counts the verdicts: "cis pass=22 fail=0 warn=3".
func Summary(results []Result) string {
	count := map[Verdict]int{}
	for _, r := range results {
		count[r.Verdict]++
	}
	return fmt.Sprintf("cis pass=%d fail=%d warn=%d", count[Pass], count[Fail], count[Warn])
}

// scan is a machine being checked.
type scan struct {
	machine  Machine
	settings map[string]any
}

// first returns the first existing file.
func (s scan) first(paths []string) (File, bool) {
	for _, path := range paths {
		if f, ok := s.machine.File(path); ok {
			return f, true
		}
	}
	return File{}, false
}

// value returns a setting of kubelet: its flag takes precedence over its configuration file.
func (s scan) value(flag, path string) (string, bool) {
	if _, rest, given := strings.Cut(s.machine.Kubelet, "--"+flag+"="); given && flag != "" {
		value, _, _ := strings.Cut(rest, " ")
		return value, true
	}
	var at any = s.settings
	for name := range strings.SplitSeq(path, ".") {
		object, _ := at.(map[string]any)
		next, given := object[name]
		if !given {
			return "", false
		}
		at = next
	}
	return fmt.Sprint(at), true
}

// setting checks a setting of kubelet, which may be unset.
func setting(flag, path string, ok func(value string, set bool) bool) func(scan) bool {
	return func(s scan) bool { return ok(s.value(flag, path)) }
}

func given(_ string, set bool) bool { return set }

func unsetOr(want string) func(string, bool) bool {
	return func(value string, set bool) bool { return !set || value == want }
}

// within reports whether a file has no permissions beyond mode.
func within(paths []string, mode fs.FileMode) func(scan) bool {
	return func(s scan) bool {
		f, ok := s.first(paths)
		return ok && f.Mode.Perm()&^mode == 0
	}
}

func rooted(paths []string) func(scan) bool {
	return func(s scan) bool {
		f, ok := s.first(paths)
		return ok && f.UID == 0 && f.GID == 0
	}
}
