package follow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Resource is a flexNodeConfig, asked as the node that it describes.
type Resource struct {
	Client *http.Client
	// Token returns a token for the provider.
	Token func(context.Context) (string, error)
	// Endpoint is the base URL of Resource Manager, or of the provider itself.
	Endpoint string
	// ID is its ARM id, UID what tells it from another of that name.
	ID, UID string
	// Trial tells the provider that a request only finds out whether it is answered: it does not count
	// as a sign of the node.
	Trial bool
}

// Answer is what a poll has brought.
type Answer struct {
	// ETag names the offer; Version is its configVersion, "" when the offer is the one that was
	// named in the poll, or none yet.
	ETag, Version string
	// Interval is how often the provider wants to be asked; 0 when it does not say.
	Interval time.Duration
	// Waited tells that the provider has held the request back.
	Waited bool
	// Deleted is set when the owner has deleted the resource.
	Deleted *Tombstone
}

// Tombstone says that a resource was deleted by its owner.
type Tombstone struct {
	DeletedAt     time.Time `json:"deletedAt"`
	UID           string    `json:"uid"`
	ConfigVersion string    `json:"configVersion"`
}

// RefusedError is an answer with an error in it.
type RefusedError struct {
	Host, Code, Message string
	Status              int
	// Pause is for how long the server asks to be left alone.
	Pause time.Duration
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

// Poll asks whether there is another offer than the one of an ETag, "" for any. With wait the
// provider may hold the answer back for so long, until there is one.
func (r *Resource) Poll(ctx context.Context, etag string, wait time.Duration) (Answer, error) {
	header := http.Header{}
	if etag != "" {
		header.Set("If-None-Match", etag)
		if wait > 0 {
			header.Set("Prefer", "wait="+strconv.Itoa(int(wait.Seconds())))
		}
	}
	resp, err := r.send(ctx, wait, http.MethodGet, "", header, nil)
	if err != nil {
		return Answer{}, fmt.Errorf("cannot ask for the configuration: %w", err)
	}
	defer finish(resp)
	answer := Answer{
		ETag: resp.Header.Get("ETag"), Interval: seconds(resp.Header, "X-Ms-Flexnode-Poll-Interval"),
		Waited: strings.HasPrefix(resp.Header.Get("Preference-Applied"), "wait"),
	}
	switch resp.StatusCode {
	case http.StatusNotModified:
		return answer, nil
	case http.StatusOK:
		answer.Version, err = r.offered(resp)
		return answer, err
	}
	refused, stone, err := r.refusal(resp)
	if err != nil {
		return Answer{}, err
	}
	if stone != nil {
		answer.Deleted = stone
		return answer, nil
	}
	return Answer{}, fmt.Errorf("cannot ask for the configuration: %w", refused)
}

// offered reads the version out of an answer with the resource in it.
func (r *Resource) offered(resp *http.Response) (string, error) {
	body, err := readJSON(resp)
	if err != nil {
		return "", err
	}
	var shown struct {
		ID         string `json:"id"`
		Properties struct {
			ConfigVersion string `json:"configVersion"`
			ResourceUID   string `json:"resourceUid"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(body, &shown); err != nil {
		return "", &strangeError{resp.Request.URL.Host, "it is no flexNodeConfig"}
	}
	if !strings.EqualFold(shown.ID, r.ID) || r.UID != "" && shown.Properties.ResourceUID != r.UID {
		return "", &strangeError{resp.Request.URL.Host, fmt.Sprintf(
			"it is about %q (uid %s), and this machine is %s (uid %s)", shorten(shown.ID),
			shorten(shown.Properties.ResourceUID), r.ID, r.UID)}
	}
	return shown.Properties.ConfigVersion, nil
}

// tombstoneInfo is the type of the additional info that has a tombstone (docs/api.md).
const tombstoneInfo = "FlexNodeConfigTombstone"

// refusal reads an error. A tombstone counts only in a 404, and only with the uid of this node.
func (r *Resource) refusal(resp *http.Response) (*RefusedError, *Tombstone, error) {
	refused := &RefusedError{
		Host: resp.Request.URL.Host, Status: resp.StatusCode,
		Pause: retryAfter(resp.Header, time.Now()),
	}
	if resp.StatusCode < 400 {
		return nil, nil, &strangeError{refused.Host, redirect(resp)}
	}
	body, err := readJSON(resp)
	if err != nil {
		return refused, nil, nil
	}
	var answer struct {
		Error struct {
			Code, Message  string
			AdditionalInfo []struct {
				Type string
				Info json.RawMessage
			}
		}
	}
	if json.Unmarshal(body, &answer) != nil {
		return refused, nil, nil
	}
	refused.Code, refused.Message = shorten(answer.Error.Code), shorten(answer.Error.Message)
	for _, info := range answer.Error.AdditionalInfo {
		var stone Tombstone
		if resp.StatusCode == http.StatusNotFound && info.Type == tombstoneInfo &&
			json.Unmarshal(info.Info, &stone) == nil && r.UID != "" && stone.UID == r.UID {
			return refused, &stone, nil
		}
	}
	return refused, nil, nil
}

// Report tells the provider how the node is.
func (r *Resource) Report(ctx context.Context, report api.Report) error {
	resp, err := r.post(ctx, "reportStatus", report)
	if err != nil {
		return fmt.Errorf("cannot report the node's status: %w", err)
	}
	finish(resp)
	return nil
}

// post sends a body to an action of the resource. An answer that is no success is an error.
func (r *Resource) post(ctx context.Context, action string, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("internal error: %w", err)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	resp, err := r.send(ctx, 0, http.MethodPost, "/"+action, header, text)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer finish(resp)
	refused, _, err := r.refusal(resp)
	if err != nil {
		return nil, err
	}
	return nil, refused
}

// send makes a request as the node. wait is for how long the answer may be held back, beside the
// usual time.
func (r *Resource) send(
	ctx context.Context, wait time.Duration, method, action string, header http.Header, body []byte,
) (*http.Response, error) {
	token, err := r.Token(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, tryMost+wait)
	where := strings.TrimRight(r.Endpoint, "/") + r.ID + action + "?api-version=" + api.APIVersion
	req, err := http.NewRequestWithContext(ctx, method, where, bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("cannot make a request for %s: %w", r.ID, withoutURL(err))
	}
	req.Header = header
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	if r.UID != "" {
		req.Header.Set("x-ms-flexnode-uid", r.UID)
	}
	if r.Trial {
		req.Header.Set("x-ms-flexnode-trial", "true")
	}
	resp, err := r.Client.Do(req)
	if err != nil {
		cancel()
		return nil, withoutURL(err)
	}
	resp.Body = &endingBody{resp.Body, cancel}
	return resp, nil
}

// endingBody ends the time of a request when its answer was read.
type endingBody struct {
	io.ReadCloser
	end context.CancelFunc
}

func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// seconds reads a header that is a number of seconds; 0 for none.
func seconds(h http.Header, name string) time.Duration {
	n, err := strconv.Atoi(h.Get(name))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(min(n, 1<<20)) * time.Second
}

// pauseOf is for how long a failed request asks to be left alone.
func pauseOf(err error) time.Duration {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.Pause
	}
	return 0
}
