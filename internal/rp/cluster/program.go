package cluster

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/runtime"
	execapi "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/Azure/AKSFlexNode/internal/rp/plugin"
)

// programTimeout limits one run of a kubeconfig's program.
const programTimeout = 30 * time.Second

// program runs the credential plugin of a trusted kubeconfig (Kubernetes, "client-go credential
// plugins"). client-go would run it without a time limit, and every request would wait for it.
type program struct {
	config  *clientcmdapi.ExecConfig
	input   string // KUBERNETES_EXEC_INFO
	timeout time.Duration
	runs    singleflight.Group

	mu    sync.Mutex
	known *shown
}

// shown holds the credentials that a program has returned.
type shown struct {
	token       string
	certificate *tls.Certificate
	expires     time.Time // zero: until the API server refuses them
}

// newProgram returns the program of a configuration.
func newProgram(c *rest.Config) (*program, error) {
	config := c.ExecProvider
	if config.InteractiveMode == clientcmdapi.AlwaysExecInteractiveMode {
		return nil, errors.New("its program needs a terminal (interactiveMode: Always)")
	}
	input := execapi.ExecCredential{}
	input.Kind, input.APIVersion = "ExecCredential", config.APIVersion
	if config.ProvideClusterInfo {
		input.Spec.Cluster = &execapi.Cluster{
			Server: c.Host, TLSServerName: c.ServerName, InsecureSkipTLSVerify: c.Insecure,
			CertificateAuthorityData: c.CAData, Config: runtime.RawExtension{Object: config.Config},
		}
	}
	text, err := json.Marshal(input)
	if err != nil {
		return nil, fmt.Errorf("cannot write the input of its program: %w", err)
	}
	return &program{config: config, input: string(text), timeout: programTimeout}, nil
}

// wrap returns a transport that sends the program's token.
func (p *program) wrap(next http.RoundTripper) http.RoundTripper {
	return &withProgram{next: next, program: p}
}

type withProgram struct {
	next    http.RoundTripper
	program *program
}

// RoundTrip implements http.RoundTripper.
func (t *withProgram) RoundTrip(r *http.Request) (*http.Response, error) {
	c, err := t.program.credentials(r.Context())
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := t.next.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		t.program.forget(c)
	}
	return response, err
}

// certificate returns the program's client certificate (tls.Config.GetClientCertificate).
func (p *program) certificate(i *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c, err := p.credentials(i.Context())
	if err != nil {
		return nil, err
	}
	if c.certificate == nil {
		return &tls.Certificate{}, nil
	}
	return c.certificate, nil
}

// credentials returns the known credentials, or runs the program. It waits for a run until ctx
// ends; the run goes on then, and its result is used later.
func (p *program) credentials(ctx context.Context) (*shown, error) {
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if known != nil && (known.expires.IsZero() || time.Now().Before(known.expires)) {
		return known, nil
	}
	select {
	case run := <-p.runs.DoChan("", p.run):
		if run.Err != nil {
			return nil, fmt.Errorf("cannot get the kubeconfig's credentials: %w", run.Err)
		}
		return run.Val.(*shown), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot wait for the kubeconfig's credentials from %s: %w",
			p.config.Command, ctx.Err())
	}
}

// forget drops credentials that the API server has refused.
func (p *program) forget(refused *shown) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == refused {
		p.known = nil
	}
}

// run runs the program once. It kills the program and its children after the timeout.
func (p *program) run() (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
	defer cancel()
	env := []string{"KUBERNETES_EXEC_INFO=" + p.input}
	for _, v := range p.config.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	output, err := plugin.Run(ctx, p.config.Command, p.config.Args, env)
	if err != nil {
		return nil, err
	}
	c, err := readShown(output, p.config.APIVersion)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.known = c
	p.mu.Unlock()
	return c, nil
}

// readShown reads the output of a program.
func readShown(text []byte, version string) (*shown, error) {
	var output execapi.ExecCredential
	if err := json.Unmarshal(text, &output); err != nil {
		return nil, fmt.Errorf("cannot read its output: %w", err)
	}
	s := output.Status
	if output.APIVersion != version || s == nil || s.Token == "" && s.ClientKeyData == "" {
		return nil, fmt.Errorf("its output has no credentials of %s", version)
	}
	c := &shown{token: s.Token}
	if s.ExpirationTimestamp != nil {
		c.expires = s.ExpirationTimestamp.Time
	}
	if s.ClientCertificateData+s.ClientKeyData == "" {
		return c, nil
	}
	pair, err := tls.X509KeyPair([]byte(s.ClientCertificateData), []byte(s.ClientKeyData))
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate in its output: %w", err)
	}
	c.certificate = &pair
	return c, nil
}
