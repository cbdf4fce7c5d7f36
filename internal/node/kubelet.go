package node

import (
	_ "embed"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

const kubeletUnit = "kubelet.service"

//go:embed kubelet.service
var kubeletService string

// kubelet writes kubelet's configuration file and its unit. Operators' settings go into drop-ins below kubelet.conf.d (same
// format, merged by kubelet over ours), into systemd drop-ins and into KUBELET_EXTRA_ARGS of /etc/default/kubelet.
func kubelet(p *part) {
	p.owe([]string{kubeletUnit}, state.NewFile(p.kubeletConfigPath(), 0o644, p.kubeletConfiguration()))
	service := execute(kubeletService, map[string]any{"Flags": p.kubeletFlags(), "Credential": p.systemdCredential()})
	p.owe([]string{state.DaemonReload, kubeletUnit}, state.NewFile(unitDir+"/"+kubeletUnit, 0o644, service))
	p.proxyDropIn(kubeletUnit)
}

func (p *part) kubeletConfigPath() string {
	return path.Join(p.config.Paths.Kubernetes.ConfigDir, "kubelet.yaml")
}

func (p *part) kubeletDropIns() string {
	return path.Join(p.config.Paths.Kubernetes.ConfigDir, "kubelet.conf.d")
}

// kubeletFlags are the settings that are no part of KubeletConfiguration; all others are in the file.
func (p *part) kubeletFlags() []string {
	dir := p.config.Paths.Kubernetes.KubeletDir
	flags := []string{
		"--config=" + p.kubeletConfigPath(),
		"--root-dir=" + dir,
		"--cert-dir=" + path.Join(dir, "pki"),
		"--kubeconfig=" + p.kubeconfig(),
		"--hostname-override=" + p.config.Agent.NodeName,
		"--node-labels=" + labels(p.config.Node.Labels),
	}
	if !p.config.Azure.ShowsToken() {
		flags = append(flags, "--bootstrap-kubeconfig="+p.bootstrapKubeconfig())
	}
	if minor(p.config.Kubernetes.Version) >= 30 {
		flags = append(flags, "--config-dir="+p.kubeletDropIns())
	}
	if ip := p.config.Node.Kubelet.NodeIP; ip != "" {
		flags = append(flags, "--node-ip="+ip)
	}
	return flags
}

// labels renders a kubelet --node-labels value in the order of the keys.
func labels(set map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(set)) {
		pairs = append(pairs, key+"="+set[key])
	}
	return strings.Join(pairs, ",")
}

// taint is a core/v1 Taint.
type taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// taints parses "key=value:Effect" and "key:Effect", the form that config has validated.
func taints(texts []string) []taint {
	var list []taint
	for _, text := range texts {
		pair, effect, _ := strings.Cut(text, ":")
		key, value, _ := strings.Cut(pair, "=")
		list = append(list, taint{Key: key, Value: value, Effect: effect})
	}
	return list
}

// defaultEviction is what kubelet evicts at by default on Linux. Kubelet forgets all of its defaults as soon as one signal is
// set, so a configured signal is laid over them (KubeletConfiguration, evictionHard).
var defaultEviction = map[string]string{
	"memory.available":   "100Mi",
	"nodefs.available":   "10%",
	"nodefs.inodesFree":  "5%",
	"imagefs.available":  "15%",
	"imagefs.inodesFree": "5%",
}

// cipherSuites are kubelet's for TLS 1.2: forward secrecy and authenticated encryption only.
var cipherSuites = []string{
	"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
	"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
	"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
	"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
	"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
}

// object is a JSON object; encoding/json writes its keys in order, so the text is the same for the same settings.
type object map[string]any

// kubeletConfiguration is a kubelet.config.k8s.io/v1beta1 KubeletConfiguration, as JSON, which is YAML. To add a setting of
// kubelet, add its line here.
func (p *part) kubeletConfiguration() string {
	node, tuning, paths := p.config.Node, p.config.Node.Kubelet, p.config.Paths.Kubernetes
	settings := object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": object{
			"anonymous": object{"enabled": false},
			"webhook":   object{"enabled": true},
			"x509":      object{"clientCAFile": p.clientCA()},
		},
		"authorization":                  object{"mode": "Webhook"},
		"cgroupDriver":                   "systemd",
		"clusterDNS":                     []string{tuning.DNSServiceIP},
		"clusterDomain":                  "cluster.local",
		"containerRuntimeEndpoint":       "unix://" + containerdSocket,
		"enforceNodeAllocatable":         []string{"pods"},
		"eventRecordQPS":                 0,
		"failSwapOn":                     true,
		"imageGCHighThresholdPercent":    tuning.ImageGCHighThreshold,
		"imageGCLowThresholdPercent":     tuning.ImageGCLowThreshold,
		"logging":                        object{"verbosity": tuning.Verbosity},
		"maxPods":                        node.MaxPods,
		"nodeStatusUpdateFrequency":      "10s",
		"protectKernelDefaults":          true,
		"readOnlyPort":                   0,
		"resolvConf":                     p.facts.ResolvConf,
		"rotateCertificates":             !p.config.Azure.ShowsToken(), // with it, kubelet would wait for a certificate and show no token
		"runtimeRequestTimeout":          "15m0s",
		"staticPodPath":                  paths.ManifestsDir,
		"streamingConnectionIdleTimeout": "4h0m0s",
		"tlsCipherSuites":                cipherSuites,
		"volumePluginDir":                paths.VolumePluginDir,
	}
	if len(node.Taints) > 0 {
		settings["registerWithTaints"] = taints(node.Taints)
	}
	if len(tuning.KubeReserved) > 0 {
		settings["kubeReserved"] = tuning.KubeReserved
	}
	if len(tuning.EvictionHard) > 0 {
		eviction := maps.Clone(defaultEviction)
		maps.Copy(eviction, tuning.EvictionHard)
		settings["evictionHard"] = eviction
	}
	text, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return header + string(text) + "\n"
}
