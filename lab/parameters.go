package lab

import "strings"

// shared are the parameters of the kernel that no namespace keeps apart, below /proc/sys. A machine
// that set them would set them for this box and for every other machine.
var shared = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// parametersScript covers each shared parameter with a file of the machine's own, which begins with
// the box's value. It runs at every boot: like the kernel's, the values are forgotten.
func parametersScript() string {
	return `#!/bin/bash
set -e
for name in ` + strings.Join(shared, " ") + `; do
  [ -e "/proc/sys/$name" ] || continue
  own=/run/flexlab/${name//\//.}
  mkdir -p /run/flexlab
  cat "/proc/sys/$name" >"$own"
  mount --bind "$own" "/proc/sys/$name"
done
`
}

const (
	parametersPath = "/usr/local/lib/flexlab/parameters"
	// parametersUnit comes before systemd applies what is in /etc/sysctl.d.
	parametersUnit = `[Unit]
Description=Kernel parameters of this machine alone
DefaultDependencies=no
Before=systemd-sysctl.service sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=` + parametersPath + `
`
)
