package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
)

const imageAPI, failurePrefix = "credentialprovider.kubelet.k8s.io/v1", "registry-"

// Images answers kubelet's requests for image credentials with the machine's identity.
type Images struct {
	// Dir holds the errors of each registry's last request, 0700.
	Dir   string
	Azure config.Azure
	Proxy Proxy
}

// registryHost matches the registry in an image name, as written by kubelet.
var registryHost = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*(?::[0-9]{1,5})?$`)

// Answer reads a CredentialProviderRequest (credentialprovider.kubelet.k8s.io/v1) and writes its
// answer. It keeps an error for Failures until the registry returns a token.
func (i Images) Answer(ctx context.Context, r io.Reader, w io.Writer) error {
	var request struct {
		APIVersion string `json:"apiVersion"`
		Image      string `json:"image"`
	}
	if err := json.NewDecoder(io.LimitReader(r, 1<<20)).Decode(&request); err != nil {
		return fmt.Errorf("cannot read kubelet's request for a credential: %w", err)
	}
	host, _, _ := strings.Cut(request.Image, "/")
	if request.APIVersion != imageAPI || !registryHost.MatchString(host) {
		return fmt.Errorf("cannot answer for the image %q in %q: only images of a registry, and "+
			"%s, are known", request.Image, request.APIVersion, imageAPI)
	}
	ctx, cancel := context.WithTimeout(ctx, 50*time.Second) // kubelet kills it after a minute
	defer cancel()
	token, err := i.token(ctx, host)
	if err = errors.Join(err, i.keep(host, err)); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": imageAPI, "kind": "CredentialProviderResponse",
		"cacheKeyType": "Registry", "cacheDuration": "30m0s", // a refresh token lives three hours
		"auth": map[string]any{host: map[string]string{
			"username": "00000000-0000-0000-0000-000000000000", "password": token}},
	})
}

// token exchanges a token of the machine's identity for a refresh token of a registry (Azure
// Container Registry, AAD-OAuth). It sends it to the host in the image's name and to no other.
func (i Images) token(ctx context.Context, host string) (string, error) {
	need := TokenFor("the registry "+host, i.Azure)
	credential := func() (Credential, error) { return Node(i.Azure, i.Proxy) }
	const scope = "https://containerregistry.azure.net/.default" // in every cloud
	aad, err := Fresh(ctx, credential, scope, need)
	if err != nil {
		return "", err
	}
	form := url.Values{
		"grant_type": {"access_token"}, "service": {host}, "access_token": {aad.Value}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"https://"+host+"/oauth2/exchange", strings.NewReader(form.Encode()))
	if err != nil {
		return "", fmt.Errorf("cannot ask the registry %s: %w", host, err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	client := transport(i.Proxy)
	defer client.CloseIdleConnections()
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	response, err := client.Do(request)
	if err != nil {
		return "", Explain(err, need)
	}
	defer response.Body.Close()
	var answer struct {
		Token string `json:"refresh_token"`
	}
	switch status := response.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return "", fmt.Errorf("the registry %s refuses the identity of this machine (%s): az role "+
			"assignment create --role AcrPull --assignee %s --scope REGISTRY-ID", host,
			response.Status, ClaimsOf(aad.Value).ObjectID)
	case status != http.StatusOK:
		return "", fmt.Errorf("cannot %s: it answered %s", need.Doing, response.Status)
	}
	err = json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&answer)
	if err != nil || answer.Token == "" {
		return "", fmt.Errorf("cannot %s: it is not an Azure Container Registry", need.Doing)
	}
	return answer.Token, nil
}

// keep records a registry's error, or removes it after a success. It removes those that are not
// recent: the names of registries are from pods.
func (i Images) keep(host string, failed error) error {
	file := filepath.Join(i.Dir, failurePrefix+host)
	if failed == nil {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot forget a failure: %w", err)
		}
		return nil
	}
	recorded, _ := filepath.Glob(filepath.Join(i.Dir, failurePrefix+"*")) // the pattern is valid
	for _, file := range recorded {
		if info, err := os.Stat(file); err == nil && time.Since(info.ModTime()).Abs() > recent {
			_ = os.Remove(file) // else the next failure does
		}
	}
	err := os.MkdirAll(i.Dir, 0o700)
	if err == nil {
		err = os.WriteFile(file, []byte(failed.Error()), 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot keep a failure: %w", err)
	}
	return nil
}

// recent is the age up to which a failure counts: kubelet retries every five minutes.
const recent = 15 * time.Minute

// Failures returns the recent errors of registries that Images has recorded in a directory.
func Failures(dir string, now time.Time) []string {
	var found []string
	files, _ := filepath.Glob(filepath.Join(dir, failurePrefix+"*")) // the pattern is valid
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || now.Sub(info.ModTime()).Abs() > recent {
			continue
		}
		if text, err := os.ReadFile(file); err == nil {
			found = append(found, string(text))
		}
	}
	return found
}
