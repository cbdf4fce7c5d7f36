package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory returns the provider's anonymous memory in bytes, thus without its program and the pages
// of the store's file.
func (b *ProviderBench) Memory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.lab.ProcessID("flexnode-rp-0")))
	if err != nil {
		return 0, fmt.Errorf("cannot read the provider's memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("cannot read the provider's memory: /proc has no RssAnon")
}

// Live returns the provider's live memory in bytes: objects and stacks after a garbage collection.
// Free memory between them is reused. It stores the heap profile under name if Profiles is set.
func (b *ProviderBench) Live(ctx context.Context, name string) (int64, error) {
	profile := ""
	for range 2 { // the second collection clears pools
		var err error
		profile, err = fetch(ctx, "http://"+debugAddress(0)+"/debug/pprof/heap?gc=1")
		if err != nil {
			return 0, err
		}
	}
	if b.Profiles != "" {
		path := filepath.Join(b.Profiles, name+".pb.gz")
		if err := os.WriteFile(path, []byte(profile), 0o600); err != nil {
			return 0, fmt.Errorf("cannot keep a profile: %w", err)
		}
	}
	text, err := fetch(ctx, ProviderMetrics(0)+"/metrics")
	if err != nil {
		return 0, err
	}
	heap, stacks := metric(text, "go_memstats_heap_alloc_bytes"),
		metric(text, "go_memstats_stack_inuse_bytes")
	if heap == 0 || stacks == 0 {
		return 0, errors.New("cannot read the provider's memory: its metrics do not have it")
	}
	return int64(heap + stacks), nil
}

// Stored returns the size of the store's file in bytes, including the changes of the last minutes.
func (b *ProviderBench) Stored(ctx context.Context) (int64, error) {
	text, err := fetch(ctx, ProviderMetrics(0)+"/metrics")
	return int64(metric(text, "flexnode_rp_store_bytes")), err
}

// fetch returns the content of a URL.
func fetch(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("cannot read %s: %s", url, response.Status)
	}
	return string(text), err
}

// metric returns the sum of a metric's values in Prometheus' text format, of the series that
// contain all labels.
func metric(text, name string, labels ...string) float64 {
	sum := 0.0
lines:
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue lines
			}
		}
		fields := strings.Fields(rest)
		if value, err := strconv.ParseFloat(fields[len(fields)-1], 64); err == nil {
			sum += value
		}
	}
	return sum
}
