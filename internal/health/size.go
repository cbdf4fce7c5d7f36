package health

import (
	"fmt"
	"strings"
)

// The memory in bytes without which the system, containerd, kubelet and the agent leave nothing for
// a pod. Of the 512 MB that a small machine is sold with, its kernel shows less.
const leastMemory = 450 << 20

// What the documents ask for: 2 GB of memory, of which the kernel shows up to a tenth less, and
// 25 GB of free disk before the node is there.
const (
	advisedMemory = 2_000_000_000 / 10 * 9
	advisedFree   = 25_000_000_000
)

// imagesDir is where images and the data of pods are.
const imagesDir = "/var/lib"

func memorySize(e Evidence) Condition {
	m := e.Machine
	switch {
	case m == nil || m.MemoryBytes == 0:
		return notAsked()
	case m.MemoryBytes < leastMemory:
		return fails(OwnerMachine, "MemoryTooSmall", fmt.Sprintf("this machine has %d MB of memory, "+
			"and a node needs at least %d MB, 2 GB to be of use: take a larger one",
			m.MemoryBytes>>20, leastMemory>>20))
	}
	return holds()
}

// sizeAdvised: a smaller machine works, with few pods and small images.
func sizeAdvised(e Evidence) Condition {
	m := e.Machine
	if m == nil || m.MemoryBytes == 0 {
		return notAsked()
	}
	var less []string
	if m.MemoryBytes < advisedMemory {
		less = append(less, fmt.Sprintf("%d MB of memory (advised are 2 GB)", m.MemoryBytes>>20))
	}
	free, known := m.Free[imagesDir]
	if known && !m.Installed && free < advisedFree { // what a node has used is no longer free
		less = append(less, fmt.Sprintf("%d GB free below %s (advised are 25 GB)",
			free/1_000_000_000, imagesDir))
	}
	if len(less) > 0 {
		return fails(OwnerMachine, "BelowRecommendedSize", "this machine has only "+
			strings.Join(less, " and ")+": it can be a node with few pods and small images")
	}
	return holds()
}
