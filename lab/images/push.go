package images

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
)

// Push pushes an image under "repository:tag" to the registry at a URL.
func Push(ctx context.Context, base, ref string, image v1.Image) error {
	at, err := url.Parse(base)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	registry := httputil.NewSingleHostReverseProxy(at)
	registry.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
	if err := push(ctx, registry, ref, image); err != nil {
		return fmt.Errorf("cannot store the image %s: %w", ref, err)
	}
	return nil
}

// push pushes an image under "repository:tag" by calling the registry's handler directly. The
// library's own client would use a container engine's configuration files. Source: the OCI
// distribution specification, "Push".
func push(ctx context.Context, registry http.Handler, ref string, image v1.Image) error {
	repository, tag, _ := strings.Cut(ref, ":")
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	config, err := partial.ConfigLayer(image)
	if err != nil {
		return err
	}
	for _, l := range append(layers, config) {
		if err := pushBlob(ctx, registry, repository, l); err != nil {
			return err
		}
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	kind, err := image.MediaType()
	if err != nil {
		return err
	}
	return send(ctx, registry, http.MethodPut, "/v2/"+repository+"/manifests/"+tag, string(kind),
		manifest)
}

func pushBlob(ctx context.Context, registry http.Handler, repository string, l v1.Layer) error {
	digest, err := l.Digest()
	if err != nil {
		return err
	}
	if has(ctx, registry, "/v2/"+repository+"/blobs/"+digest.String()) {
		return nil
	}
	body, err := l.Compressed()
	if err != nil {
		return err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return send(ctx, registry, http.MethodPost,
		"/v2/"+repository+"/blobs/uploads/?digest="+digest.String(), "application/octet-stream", text)
}

// has reports whether a registry has a blob; images may share layers.
func has(ctx context.Context, registry http.Handler, target string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, target, nil)
	if err != nil {
		return false
	}
	answer := httptest.NewRecorder()
	registry.ServeHTTP(answer, req)
	return answer.Code == http.StatusOK
}

func send(
	ctx context.Context, registry http.Handler, method, target, kind string, body []byte,
) error {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	answer := httptest.NewRecorder()
	registry.ServeHTTP(answer, req)
	if answer.Code != http.StatusCreated {
		return fmt.Errorf("%s %s: status %d: %s", method, target, answer.Code,
			bytes.TrimSpace(answer.Body.Bytes()))
	}
	return nil
}
