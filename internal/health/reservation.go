package health

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// What systemd, containerd and kubelet themselves use, about. kubeReserved is meant for that, so
// the larger of the two counts.
const (
	systemMillis = 100
	systemMemory = 256 << 20
)

// What kubelet evicts at when nothing is configured (KubeletConfiguration, evictionHard).
const (
	defaultMemoryEviction = "100Mi"
	defaultDiskEviction   = "10%"
)

// reservationsFit: kubelet exits at once, each time that it starts, when kubeReserved and
// evictionHard are more than the machine has. What they leave must be something.
func reservationsFit(e Evidence) Condition {
	m, w := e.Machine, e.Wanted
	if m == nil || m.CPUMillis == 0 || m.MemoryBytes == 0 {
		return notAsked()
	}
	cpu, err1 := quantity(w.Reserved["cpu"])
	memory, err2 := quantity(w.Reserved["memory"])
	disk, err3 := quantity(w.Reserved["ephemeral-storage"])
	memoryEviction, err4 := threshold(
		w.Eviction["memory.available"], defaultMemoryEviction, m.MemoryBytes)
	diskEviction, err5 := threshold(
		w.Eviction["nodefs.available"], defaultDiskEviction, m.DiskBytes)
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if err != nil {
			return fails(OwnerConfiguration, "InvalidQuantity", "node.kubelet.kubeReserved or "+
				"evictionHard: "+err.Error())
		}
	}
	var short []string
	if millis := max(cpu.MilliValue(), systemMillis); millis >= m.CPUMillis {
		short = append(short, fmt.Sprintf("cpu: %dm of %dm", millis, m.CPUMillis))
	}
	// The quantities are compared as such: their sum may be more than an int64 holds.
	need := atLeast(memory, systemMemory)
	need.Add(memoryEviction)
	if need.CmpInt64(m.MemoryBytes) >= 0 {
		short = append(short, fmt.Sprintf("memory: %s of %d MB", need.String(), m.MemoryBytes>>20))
	}
	disk.Add(diskEviction)
	if m.DiskBytes > 0 && disk.CmpInt64(m.DiskBytes) >= 0 {
		short = append(short, fmt.Sprintf("disk: %s of %d MB", disk.String(), m.DiskBytes>>20))
	}
	if len(short) > 0 {
		return fails(OwnerConfiguration, "NothingAllocatable", fmt.Sprintf("nothing of this "+
			"machine would be left for pods, since the system, node.kubelet.kubeReserved and "+
			"evictionHard need %s; "+
			"kubelet does not start like that: lower them", strings.Join(short, ", ")))
	}
	return holds()
}

// quantity parses a quantity; "" is 0.
func quantity(text string) (resource.Quantity, error) {
	if text == "" {
		return resource.Quantity{}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return q, fmt.Errorf("cannot read the quantity %q: %w", text, err)
	}
	return q, nil
}

// threshold parses a quantity or a percentage of capacity.
func threshold(text, otherwise string, capacity int64) (resource.Quantity, error) {
	if text == "" {
		text = otherwise
	}
	percent, ok := strings.CutSuffix(text, "%")
	if !ok {
		return quantity(text)
	}
	p, err := strconv.ParseFloat(percent, 64)
	if err != nil {
		return resource.Quantity{}, fmt.Errorf("cannot read the percentage %q: %w", text, err)
	}
	bytes := int64(p / 100 * float64(capacity))
	return *resource.NewQuantity(bytes, resource.BinarySI), nil
}

func atLeast(q resource.Quantity, bytes int64) resource.Quantity {
	if q.CmpInt64(bytes) >= 0 {
		return q
	}
	return *resource.NewQuantity(bytes, resource.BinarySI)
}
