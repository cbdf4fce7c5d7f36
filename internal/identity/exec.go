package identity

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// WriteExec writes a token as an ExecCredential of client.authentication.k8s.io. info is the
// environment's KUBERNETES_EXEC_INFO, which says in which version; "" means v1. The time given as
// the token's end is when it is to be replaced, so that it is early.
func WriteExec(w io.Writer, t Token, info string) error {
	version := "client.authentication.k8s.io/v1"
	if info != "" {
		var asked struct {
			APIVersion string `json:"apiVersion"`
		}
		if err := json.Unmarshal([]byte(info), &asked); err != nil {
			return fmt.Errorf("cannot read KUBERNETES_EXEC_INFO: %w", err)
		}
		if asked.APIVersion != version && asked.APIVersion != version+"beta1" {
			return fmt.Errorf("cannot answer in %q: only v1 and v1beta1 of "+
				"client.authentication.k8s.io are known", asked.APIVersion)
		}
		version = asked.APIVersion
	}
	until := t.Refresh
	if t.Expires.Before(until) {
		until = t.Expires
	}
	return json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": version, "kind": "ExecCredential", "status": map[string]any{
			"token": t.Value, "expirationTimestamp": until.UTC().Truncate(time.Second),
		}})
}
