package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// KubeletHealthz is where kubelet says whether it is healthy, by default.
const KubeletHealthz = "http://127.0.0.1:10248/healthz"

// Healthz asks a healthz endpoint. The error quotes what it answers when that is not 200.
func Healthz(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("cannot ask %s: %w", url, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("cannot ask for health: %w", err) // it names the URL
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if err != nil {
		return fmt.Errorf("cannot read the answer of %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		said := strings.Join(strings.Fields(string(body)), " ")
		return fmt.Errorf("%s answers %s: %.240s", url, response.Status, said)
	}
	return nil
}
