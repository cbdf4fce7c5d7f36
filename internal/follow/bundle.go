package follow

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Bundle fetches the configuration that is on offer, with its secrets. They are sealed to a key
// that is made for this one request, so that nothing between the provider and this process reads
// them. joined tells that the node needs no bootstrap token, so that an empty one is in the bundle.
func (r *Resource) Bundle(ctx context.Context, joined bool) ([]byte, error) {
	key, err := sealed.NewKey()
	if err != nil {
		return nil, err
	}
	ask := api.Refresh{PublicKey: key.Public(), Joined: joined}
	resp, err := r.post(ctx, "refreshCredentials", ask)
	if err != nil {
		return nil, fmt.Errorf("cannot fetch the configuration: %w", err)
	}
	defer finish(resp)
	body, err := readJSON(resp)
	if err != nil {
		return nil, err
	}
	var answer api.Refreshed
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, &strangeError{resp.Request.URL.Host, "it is no answer of refreshCredentials"}
	}
	return key.Open(sealed.About{ID: r.ID, UID: r.UID}, answer.EncapsulatedKey, answer.Ciphertext)
}
