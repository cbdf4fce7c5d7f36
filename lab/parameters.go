package lab

import "strings"

// shared are the kernel parameters, below /proc/sys, that no namespace isolates. A machine that set
// them would set them for the host and every other machine.
var shared = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// parametersScript returns a script that mounts over each shared parameter a file that starts with
// the host's value. It runs at every boot; like the kernel's, the values are not persistent.
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
	// parametersUnit runs before systemd applies /etc/sysctl.d.
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
