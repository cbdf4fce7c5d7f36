package node

import (
	_ "embed"
	"maps"
	"path"
	"reflect"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// KubeletUnit is the unit of kubelet.
const KubeletUnit = "kubelet.service"

//go:embed kubelet.service
var kubeletService string

// kubelet writes kubelet's configuration file and its unit. Operators' settings belong into
// drop-ins below kubelet.conf.d (same format, merged over ours by kubelet), into systemd drop-ins
// and into KUBELET_EXTRA_ARGS of /etc/default/kubelet.
func kubelet(p *part) {
	p.owe([]string{KubeletUnit}, state.NewFile(p.kubeletConfigPath(), 0o600, p.kubeletConfiguration()))
	registration(p)
	imageCredentials(p)
	p.unit(KubeletUnit, 0o600, fill(kubeletService,
		"{{Flags}}", strings.Join(p.kubeletFlags(), " \\\n  "),
		"{{Credential}}", p.loadCredential(),
		"{{KubeletDir}}", p.config.Paths.Kubernetes.KubeletDir,
		"{{Registration}}", p.registrationPath()))
	p.proxyDropIn(KubeletUnit)
}

// loadCredential returns the line of a unit for the systemd credential with the service principal's
// secret; "" without one.
func (p *part) loadCredential() string {
	sp := p.config.Azure.ServicePrincipal
	if sp == nil || sp.ClientSecretFile == "" || path.IsAbs(sp.ClientSecretFile) {
		return ""
	}
	return "LoadCredential=" + sp.ClientSecretFile + "\n"
}

// kubeletConfigPath returns the path that people and scanners of the CIS benchmark expect.
func (p *part) kubeletConfigPath() string {
	return path.Join(p.config.Paths.Kubernetes.KubeletDir, "config.yaml")
}

func (p *part) kubeletDropIns() string {
	return path.Join(p.config.Paths.Kubernetes.ConfigDir, "kubelet.conf.d")
}

// kubeletFlags returns the settings outside KubeletConfiguration; others are in the file, or in
// registration's if kubelet reads them only when it registers the Node.
func (p *part) kubeletFlags() []string {
	dir := p.config.Paths.Kubernetes.KubeletDir
	flags := []string{
		"--config=" + p.kubeletConfigPath(),
		"--root-dir=" + dir,
		"--cert-dir=" + certDir(dir),
		"--kubeconfig=" + p.kubeconfig(),
	}
	if p.facts.Renames(p.config.Agent.NodeName) {
		flags = append(flags, "--hostname-override="+p.config.Agent.NodeName)
	}
	if !p.config.Azure.ShowsToken() {
		flags = append(flags, "--bootstrap-kubeconfig="+p.bootstrapKubeconfig())
	}
	if !strings.HasPrefix(p.config.Kubernetes.Version, "1.29.") { // added in 1.30
		flags = append(flags, "--config-dir="+p.kubeletDropIns())
	}
	if len(p.config.Azure.Registries) > 0 {
		flags = append(flags, "--image-credential-provider-bin-dir="+imageCredentialDir,
			"--image-credential-provider-config="+p.imageCredentialConfig())
	}
	if ip := p.config.Node.Kubelet.NodeIP; ip != "" {
		flags = append(flags, "--node-ip="+ip)
	}
	return flags
}

// defaultEviction holds kubelet's default eviction thresholds on Linux. Kubelet drops all its
// defaults as soon as one signal is set, so configured signals are merged over them
// (KubeletConfiguration, evictionHard).
var defaultEviction = map[string]string{
	"memory.available":   "100Mi",
	"nodefs.available":   "10%",
	"nodefs.inodesFree":  "5%",
	"imagefs.available":  "15%",
	"imagefs.inodesFree": "5%",
}

// cipherSuites are the cipher suites for TLS 1.2: forward secrecy and authenticated encryption
// only, spelled as in the CIS Kubernetes Benchmark (4.2.12), whose scanners compare the names.
var cipherSuites = []string{
	"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
	"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
	"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
	"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
	"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
}

// kubeletConfiguration returns a kubelet.config.k8s.io/v1beta1 KubeletConfiguration, as JSON, which
// is valid YAML. To add a setting of kubelet, add its line here.
func (p *part) kubeletConfiguration() string {
	node, tuning, paths := p.config.Node, p.config.Node.Kubelet, p.config.Paths.Kubernetes
	// Kubelet would wait for a certificate to rotate, instead of using its token.
	rotate := !p.config.Azure.ShowsToken()
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
		"containerRuntimeEndpoint":       "unix://" + ContainerdSocket,
		"enforceNodeAllocatable":         []string{"pods"},
		"eventRecordQPS":                 5, // what 0 meant up to 1.36; from 1.37 on it is no limit
		"failSwapOn":                     !tuning.KeepsSwap(),
		"imageGCHighThresholdPercent":    tuning.ImageGCHighThreshold,
		"imageGCLowThresholdPercent":     tuning.ImageGCLowThreshold,
		"logging":                        object{"verbosity": tuning.Verbosity},
		"maxPods":                        node.MaxPods,
		"nodeStatusUpdateFrequency":      "10s",
		"protectKernelDefaults":          true,
		"readOnlyPort":                   0,
		"resolvConf":                     p.facts.ResolvConf,
		"rotateCertificates":             rotate,
		"runtimeRequestTimeout":          "15m0s",
		"staticPodPath":                  paths.ManifestsDir,
		"streamingConnectionIdleTimeout": "4h0m0s",
		"tlsCipherSuites":                cipherSuites,
		"volumePluginDir":                paths.VolumePluginDir,
	}
	for name, value := range p.optional() {
		if !reflect.ValueOf(value).IsZero() {
			settings[name] = value
		}
	}
	return header + indented(settings, "") + "\n"
}

// optional returns the settings for which kubelet has its own default.
func (p *part) optional() object {
	tuning := p.config.Node.Kubelet
	settings := object{
		"containerLogMaxSize":  tuning.ContainerLogMaxSize,
		"containerLogMaxFiles": tuning.ContainerLogMaxFiles,
		"kubeReserved":         p.config.Node.Reserved(p.facts.Processors, p.facts.Memory),
		"seccompDefault":       tuning.SeccompDefault,
		"podPidsLimit":         tuning.PodPidsLimit,
		"serverTLSBootstrap":   tuning.ServerTLSBootstrap,
		"shutdownGracePeriod":  tuning.ShutdownGracePeriod,
	}
	if tuning.KeepsSwap() {
		settings["memorySwap"] = object{"swapBehavior": tuning.Swap}
	}
	// From 1.35 on kubelet verifies that a pod may use an image that is already present. It treats an
	// imported image as pulled if another name of it was pulled, but imports are for every pod. Older
	// versions refuse the setting.
	if p.config.Kubernetes.VerifiesImages() {
		settings["imagePullCredentialsVerificationPolicy"] = "NeverVerify"
	}
	if tuning.ShutdownGracePeriod != "" {
		settings["shutdownGracePeriodCriticalPods"] = tuning.CriticalGracePeriod
	}
	if len(tuning.EvictionHard) > 0 {
		eviction := maps.Clone(defaultEviction)
		maps.Copy(eviction, tuning.EvictionHard)
		settings["evictionHard"] = eviction
	}
	return settings
}
