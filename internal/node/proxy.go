package node

import (
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// proxyDropIn gives a service the configured proxy. A proxy's URL may hold a password, and systemd
// shows Environment= to every user, so the values are in a file that only root can read.
func (p *part) proxyDropIn(unit string) {
	proxy := p.config.Proxy
	if proxy.HTTP == "" && proxy.HTTPS == "" {
		return
	}
	dir := unitDir + "/" + unit + ".d"
	name := strings.TrimSuffix(unit, ".service")
	envFile := "/etc/" + name + "-proxy.env"
	var env strings.Builder
	env.WriteString(header)
	for _, v := range [...]struct{ name, value string }{
		{"HTTP_PROXY", proxy.HTTP.Reveal()},
		{"HTTPS_PROXY", proxy.HTTPS.Reveal()},
		{"NO_PROXY", strings.Join(p.config.Bypass(), ",")},
	} {
		if v.value != "" {
			env.WriteString(v.name + "=" + quoteEnv(v.value) + "\n")
		}
	}
	dropIn := header + "[Service]\nEnvironmentFile=" + envFile + "\n"
	p.add(shared(dir))
	p.owe([]string{unit}, state.NewFile(envFile, 0o600, env.String()))
	p.owe([]string{state.DaemonReload, unit},
		state.NewFile(dir+"/10-aks-flex-node-proxy.conf", 0o644, dropIn))
}

// quoteEnv quotes a value for an EnvironmentFile (systemd.exec(5)).
func quoteEnv(value string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$", `\$`)
	return `"` + escape.Replace(value) + `"`
}
