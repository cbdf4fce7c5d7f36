package host

import (
	"strings"
)

// machineID is that of machine-id(5), as kubelet reports it; "" where there is none.
func (h *Host) machineID() string {
	return h.firstLine("/etc/machine-id", "/var/lib/dbus/machine-id")
}

// systemUUID is the firmware's or the hypervisor's identifier of the machine, found where kubelet
// finds it (cAdvisor's GetSystemUUID); "" where there is none.
func (h *Host) systemUUID() string {
	return h.firstLine("/sys/class/dmi/id/product_uuid", "/proc/device-tree/system-id",
		"/proc/device-tree/vm,uuid", "/etc/machine-id")
}

// firstLine is what the first file says that is there.
func (h *Host) firstLine(paths ...string) string {
	for _, path := range paths {
		if text, err := h.ReadFile(path); err == nil {
			return strings.TrimSpace(strings.TrimRight(string(text), "\x00"))
		}
	}
	return ""
}
