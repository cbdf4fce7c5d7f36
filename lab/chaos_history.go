package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// keepHistory writes a node's history that is not linearizable to a file and returns its path: the
// operations in the order they began, with their place in the longest linearizable prefix.
func (c *chaosRun) keepHistory(
	node string, part []porcupine.Operation, info porcupine.LinearizationInfo,
) (string, error) {
	place := map[int]int{}
	for _, orders := range info.PartialLinearizations() {
		for _, order := range orders {
			if len(order) > len(place) {
				clear(place)
				for i, id := range order {
					place[id] = i + 1
				}
			}
		}
	}
	order := make([]int, len(part))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(part[a].Call - part[b].Call) })
	var text strings.Builder
	for _, i := range order {
		op := part[i]
		fmt.Fprintf(&text, "%9.3f to %9.3f  client %2d  order %4d  %+v -> %+v\n",
			time.Duration(op.Call).Seconds(), time.Duration(op.Return).Seconds(), op.ClientId, place[i],
			op.Input, op.Output)
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("flexlab-chaos-%d-%s.txt", c.Seed, node))
	return path, os.WriteFile(path, []byte(text.String()), 0o600)
}
