package azuresim

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// machines serves Microsoft.HybridCompute/machines: Arc-enabled servers. A PUT creates the
// machine's managed identity with the public key that the machine sends.
func (s *Sim) machines(w http.ResponseWriter, c call) *arm.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := c.id.Key()
	known := s.resources[key]
	switch {
	case c.id.Name() == "" && c.Method == http.MethodGet:
		var items []any
		for _, id := range slices.Sorted(maps.Keys(s.resources)) {
			if arm.Within(id,
				strings.TrimSuffix(key, "/providers/microsoft.hybridcompute/machines")) {
				items = append(items, s.resources[id])
			}
		}
		arm.WriteJSON(w, 200, list(items))
	case c.Method == http.MethodPut:
		return s.putMachine(w, c, known)
	case known == nil && c.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case known == nil:
		return notFound(c)
	case c.Method == http.MethodGet:
		arm.WriteJSON(w, 200, known)
	case c.Method == http.MethodPatch:
		return patchMachine(w, c, known)
	case c.Method == http.MethodDelete:
		s.removeMachine(key)
		w.WriteHeader(http.StatusOK)
	default:
		return notAllowed(w, c, "GET, PUT, PATCH, DELETE")
	}
	return nil
}

// patchMachine replaces a machine's tags if the body has any.
func patchMachine(w http.ResponseWriter, c call, known map[string]any) *arm.Error {
	var body struct {
		Tags map[string]string `json:"tags"`
	}
	if err := decode(c, &body); err != nil {
		return err
	}
	if body.Tags != nil {
		known["tags"] = body.Tags
	}
	arm.WriteJSON(w, 200, known)
	return nil
}

func (s *Sim) putMachine(w http.ResponseWriter, c call, known map[string]any) *arm.Error {
	var body struct {
		Location   string            `json:"location"`
		Tags       map[string]string `json:"tags"`
		Properties map[string]any    `json:"properties"`
	}
	if err := decode(c, &body); err != nil {
		return err
	}
	if body.Location == "" {
		return arm.Errorf(400, "LocationRequired",
			"The location property is required for this definition.")
	}
	if known != nil { // as azcmagent connect says
		return arm.Errorf(409, "AZCM0044", "A resource with the same name already exists: %s.", c.id)
	}
	identity := Application{ClientID: uuid.NewString(), ObjectID: uuid.NewString(),
		Name: c.id.Name(), ResourceID: c.id.String()}
	s.made[identity.ObjectID] = s.now()
	if text, ok := body.Properties["clientPublicKey"].(string); ok {
		public, err := publicKey(text)
		if err != nil {
			return err
		}
		identity.PublicKey = public
	}
	s.addApplication(identity)
	properties := map[string]any{
		"status": "Connected", "provisioningState": "Succeeded", "agentVersion": "1.62.0-azuresim",
		"osType": "linux", "vmId": uuid.NewString(),
		"lastStatusChange": s.now().UTC().Format(time.RFC3339), "displayName": c.id.Name(),
	}
	maps.Copy(properties, body.Properties)
	machine := map[string]any{
		"id": c.id.String(), "name": c.id.Name(), "type": "Microsoft.HybridCompute/machines",
		"location": body.Location, "tags": body.Tags,
		"identity": map[string]any{"type": "SystemAssigned", "principalId": identity.ObjectID,
			"tenantId": s.world.TenantID, "clientId": identity.ClientID},
		"properties": properties,
	}
	s.resources[c.id.Key()] = machine
	arm.WriteJSON(w, 200, machine)
	return nil
}

// publicKey converts a PKCS #1 key in base64, as machines send it, to PKIX PEM.
func publicKey(text string) (string, *arm.Error) {
	bad := arm.Errorf(400, "InvalidParameter", "The property clientPublicKey is not an RSA key.")
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", bad
	}
	key, err := x509.ParsePKCS1PublicKey(der)
	if err != nil {
		return "", bad
	}
	pkix, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", bad
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pkix})), nil
}

// removeMachine deletes a machine and its identity.
func (s *Sim) removeMachine(key string) {
	principal := s.resources[key]["identity"].(map[string]any)["principalId"]
	s.world.Applications = slices.DeleteFunc(s.world.Applications,
		func(a Application) bool { return a.ObjectID == principal })
	delete(s.resources, key)
}

// RemoveMachines deletes all Arc machines without notice to their agents.
func (s *Sim) RemoveMachines() {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.resources {
		s.removeMachine(key)
	}
}

// Machines returns the sorted ids of the Arc machines.
func (s *Sim) Machines() []string {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := []string{}
	for _, m := range s.resources {
		ids = append(ids, m["id"].(string))
	}
	slices.Sort(ids)
	return ids
}
