package follow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
)

// Resource is a client of a flexNodeConfig, which authenticates as its node.
type Resource struct {
	Client   *http.Client
	Signer   *Signer // signs with the machine's key; if nil, Token returns a token for each request
	Token    func(context.Context) (string, error)
	Endpoint string // the base URL of Resource Manager, or of the provider itself
	ID, UID  string // the ARM id, and what distinguishes it from others with that id
	Trial    bool   // tells the provider that the request is no sign of life
}

// Answer holds the result of a poll.
type Answer struct {
	// ETag identifies the offer; Version is its configVersion, "" for none or the one in the request.
	ETag, Version  string
	Interval       time.Duration       // between polls, as the provider requests; 0 if none
	Waited         bool                // the provider has held the request
	Woken          bool                // answered early without a new offer: a held change may begin
	Second         bool                // the provider has seen another machine beside this one
	Diagnose, Kind string              // the id and the kind of the requested diagnosis, "" for none
	Deleted        *agentapi.Tombstone // set if the owner has deleted the resource
}

// RefusedError is an error that the provider returned.
type RefusedError struct {
	Host, Code, Message string
	Status              int
	Pause               time.Duration // the pause that the server requests
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%s answers %d", e.Host, e.Status)
	if e.Code != "" {
		text += " " + e.Code
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Poll requests an offer with another ETag; "" accepts any offer. The provider may wait for one.
func (r *Resource) Poll(ctx context.Context, etag string, wait time.Duration) (Answer, error) {
	header := http.Header{}
	if etag != "" {
		header.Set("If-None-Match", etag)
		if wait > 0 {
			header.Set("Prefer", "wait="+strconv.Itoa(int(wait.Seconds())))
		}
	}
	sent := time.Now()
	resp, err := r.send(ctx, wait, http.MethodGet, "", header, nil)
	if err != nil {
		return Answer{}, fmt.Errorf("cannot ask for the configuration: %w", err)
	}
	applied := resp.Header.Get("Preference-Applied")
	answer := Answer{
		ETag: resp.Header.Get("ETag"), Interval: resp.seconds("X-Ms-Flexnode-Poll-Interval"),
		Waited: strings.HasPrefix(applied, "wait"),
		Second: resp.Header.Get(machinekey.SecondHeader) != "",
	}
	answer.Diagnose, answer.Kind, _ = strings.Cut(resp.Header.Get(agentapi.DiagnoseHeader), " ")
	switch resp.StatusCode {
	case http.StatusNotModified:
		held, err := strconv.Atoi(strings.TrimPrefix(applied, "wait="))
		answer.Woken = err == nil && time.Since(sent) < time.Duration(held)*time.Second
		return answer, nil
	case http.StatusOK:
		answer.Version, err = r.offered(resp)
		return answer, err
	}
	if answer.Deleted, err = r.refusal(resp); answer.Deleted != nil {
		return answer, nil
	}
	return Answer{}, fmt.Errorf("cannot ask for the configuration: %w", err)
}

func (r *Resource) offered(resp *reply) (string, error) {
	var shown struct {
		ID         string `json:"id"`
		Properties struct {
			ConfigVersion string `json:"configVersion"`
			ResourceUID   string `json:"resourceUid"`
		} `json:"properties"`
	}
	if err := resp.decode(&shown, "a flexNodeConfig"); err != nil {
		return "", err
	}
	if !strings.EqualFold(shown.ID, r.ID) || r.UID != "" && shown.Properties.ResourceUID != r.UID {
		return "", resp.strange("it is about %q (uid %s), and this machine is %s (uid %s)",
			shorten(shown.ID), shorten(shown.Properties.ResourceUID), r.ID, r.UID)
	}
	return shown.Properties.ConfigVersion, nil
}

// tombstoneInfo is the type of the additional info with a tombstone (docs/reference/api.md).
const tombstoneInfo = "FlexNodeConfigTombstone"

// refusal reads an error. A tombstone counts only in a 404, and only with the uid of this node.
func (r *Resource) refusal(resp *reply) (*agentapi.Tombstone, error) {
	if resp.StatusCode < 400 {
		return nil, resp.redirect()
	}
	refused := &RefusedError{
		Host: resp.Request.URL.Host, Status: resp.StatusCode, Pause: resp.retryAfter(),
	}
	problem := resp.problem()
	refused.Code, refused.Message = shorten(problem.Code), shorten(problem.Message)
	for _, info := range problem.AdditionalInfo {
		var stone agentapi.Tombstone
		if resp.StatusCode == http.StatusNotFound && info.Type == tombstoneInfo &&
			json.Unmarshal(info.Info, &stone) == nil && r.UID != "" && stone.UID == r.UID {
			return &stone, refused
		}
	}
	return nil, refused
}

// Bundle fetches the offered configuration. Its secrets are encrypted to a key made for this
// request, so that no intermediary can read them. joined requests an empty bootstrap token.
func (r *Resource) Bundle(ctx context.Context, joined bool) ([]byte, error) {
	key, err := sealed.NewKey()
	if err != nil {
		return nil, err
	}
	ask := agentapi.Refresh{PublicKey: key.Public(), Joined: joined}
	resp, err := r.post(ctx, "refreshCredentials", ask)
	if err != nil {
		return nil, fmt.Errorf("cannot fetch the configuration: %w", err)
	}
	return r.opened(key, resp, "an answer of refreshCredentials")
}

// opened returns the sealed content of an answer.
func (r *Resource) opened(key *sealed.Key, resp *reply, name string) ([]byte, error) {
	var answer agentapi.LeaveSecret // the sealed part of a Refreshed too
	if err := resp.decode(&answer, name); err != nil {
		return nil, err
	}
	return key.Open(sealed.About{ID: r.ID, UID: r.UID}, answer.EncapsulatedKey, answer.Ciphertext)
}

// Report reports the node's status to the provider.
func (r *Resource) Report(ctx context.Context, report agentapi.Report) error {
	if _, err := r.post(ctx, "reportStatus", report); err != nil {
		return fmt.Errorf("cannot report the node's status: %w", err)
	}
	return nil
}

// Diagnosed sends the result of a requested diagnosis.
func (r *Resource) Diagnosed(ctx context.Context, d agentapi.Diagnosed) error {
	if _, err := r.post(ctx, "reportDiagnosis", d); err != nil {
		return fmt.Errorf("cannot report the diagnosis: %w", err)
	}
	return nil
}

const slowest = 8 << 10 // the slowest supported line, in bytes per second

// post sends a body to an action of the resource. An unsuccessful answer is an error.
func (r *Resource) post(ctx context.Context, action string, body any) (*reply, error) {
	text, _ := json.Marshal(body) // each type of package agentapi can be encoded
	header := http.Header{"Content-Type": {"application/json"}}
	carried := time.Duration(len(text)) * time.Second / slowest
	resp, err := r.send(ctx, carried, http.MethodPost, "/"+action, header, text)
	if err == nil && resp.StatusCode >= 300 {
		_, err = r.refusal(resp)
	}
	return resp, err
}

// send makes a request as the node. wait extends the usual timeout. A signed request is sent again
// if the clocks differ, or after registering an unregistered key.
func (r *Resource) send(
	ctx context.Context, wait time.Duration, method, action string, header http.Header, body []byte,
) (*reply, error) {
	once := func() (*reply, error) {
		ctx, cancel := context.WithTimeout(ctx, tryLimit+wait)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, r.url(action), bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("cannot make a request for %s: %w", r.ID, withoutURL(err))
		}
		req.Header = header.Clone()
		if err := r.authorize(ctx, req, body); err != nil {
			return nil, err
		}
		if r.UID != "" {
			req.Header.Set("x-ms-flexnode-uid", r.UID)
		}
		if r.Trial {
			req.Header.Set("x-ms-flexnode-trial", "true")
		}
		return ask(r.Client, req)
	}
	resp, err := once()
	if err == nil && r.Signer != nil && r.Signer.challenged(resp) {
		resp, err = once()
	}
	if err != nil || r.Signer == nil || action == "/"+registerAction ||
		!slices.Contains([]string{notRegistered, secondMachine}, resp.problem().Code) {
		return resp, err
	}
	if err := r.register(ctx); err != nil {
		return nil, err
	}
	return once()
}

func (r *Resource) url(action string) string {
	return strings.TrimRight(r.Endpoint, "/") + r.ID + action + "?api-version=" + agentapi.Version
}
