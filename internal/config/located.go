package config

// Located reports whether the configuration says where the API server is, so that Azure is not
// asked.
func (c Config) Located() bool {
	return c.Node.Kubelet.ServerURL != "" && c.Node.Kubelet.CACertData != ""
}
