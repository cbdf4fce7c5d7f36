package config

// Onboards reports whether the configuration has a service principal that enrols the machine with
// Arc. Its secret is not kept once the machine is enrolled.
func (c Azure) Onboards() bool {
	sp := c.ServicePrincipal
	return sp != nil &&
		(sp.ClientSecret != "" || sp.ClientSecretFile != "" || sp.CertificateFile != "")
}
