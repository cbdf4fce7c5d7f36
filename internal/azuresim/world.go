package azuresim

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// DefaultTenant is the tenant of a world without one.
const DefaultTenant = "11111111-1111-1111-1111-111111111111"

// World describes the contents of Azure.
type World struct {
	TenantID       string         `json:"tenantId,omitempty"`
	Subscriptions  []Subscription `json:"subscriptions"`
	ResourceGroups []string       `json:"resourceGroups"` // ids
	Applications   []Application  `json:"applications"`
	Users          []User         `json:"users"`
	Clusters       []Cluster      `json:"clusters"`
	Assignments    []Assignment   `json:"assignments"`
	// Registry is the id of the container registry, which is served at the common origin.
	Registry string   `json:"registry,omitempty"`
	Denials  []Denial `json:"denials,omitempty"`
	Groups   []Group  `json:"groups,omitempty"`
	// ManagementGroups are the management groups between subscriptions and the root.
	ManagementGroups []ManagementGroup `json:"managementGroups,omitempty"`
	// Roles are custom roles.
	Roles []Role `json:"roles,omitempty"`
}

// Subscription is an Azure subscription.
type Subscription struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Application is an Entra application with its service principal in the tenant, or a managed
// identity, which has no visible secret.
type Application struct {
	ClientID string   `json:"clientId"`
	ObjectID string   `json:"objectId"`
	Name     string   `json:"name"`
	Secrets  []Secret `json:"secrets,omitempty"`
	// Certificates are PEM; their keys sign assertions. PublicKey is a machine's PKIX key in PEM, for
	// its managed identity.
	Certificates []string `json:"certificates,omitempty"`
	PublicKey    string   `json:"publicKey,omitempty"`
	// ResourceID is the Azure resource of a managed identity.
	ResourceID string `json:"resourceId,omitempty"`
	// Groups are the object ids of its Entra groups.
	Groups []string `json:"groups,omitempty"`
	// ConsentMissing makes token requests fail with AADSTS65001.
	ConsentMissing bool `json:"consentMissing,omitempty"`
}

// Secret is a client secret; without Expires it does not expire.
type Secret struct {
	Value   string    `json:"value"`
	Expires time.Time `json:"expires,omitzero"`
}

// User is a user who can approve a device code.
type User struct {
	ObjectID string `json:"objectId"`
	Name     string `json:"name"` // user principal name
}

// Assignment grants a principal a role at a scope and below.
type Assignment struct {
	// Name is the assignment's GUID; if empty, it is generated.
	Name        string `json:"name,omitempty"`
	Scope       string `json:"scope"`
	RoleID      string `json:"roleId"` // the GUID of a Role
	PrincipalID string `json:"principalId"`
	// Condition limits the assignment (Azure ABAC); "" for none. See holds.
	Condition string `json:"condition,omitempty"`
}

// Denial is a deny assignment.
type Denial struct {
	Name       string   `json:"name"`
	Scope      string   `json:"scope"`
	Actions    []string `json:"actions"`
	NotActions []string `json:"notActions,omitempty"`
	// Exact denials do not apply below the scope.
	Exact bool `json:"doNotApplyToChildScopes,omitempty"`
	// PrincipalIDs are the principals to deny; the nil GUID is everyone. Except are exempt.
	PrincipalIDs []string `json:"principalIds"`
	Except       []string `json:"except,omitempty"`
}

// Group is an Entra group.
type Group struct {
	ObjectID string `json:"objectId"`
	// Members are object ids, also of groups.
	Members []string `json:"members"`
}

// ManagementGroup is a group of subscriptions and of the management groups with this parent.
type ManagementGroup struct {
	Name          string   `json:"name"`
	Parent        string   `json:"parent,omitempty"`
	Subscriptions []string `json:"subscriptions,omitempty"`
}

// Load replaces the world. Its principals and assignments are in effect at once.
func (s *Sim) Load(w World) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.TenantID == "" {
		w.TenantID = DefaultTenant
	}
	for i := range w.Assignments {
		w.Assignments[i].complete()
	}
	s.world = w
}

func (a *Assignment) complete() {
	if a.Name == "" {
		a.Name = uuid.NewString()
	}
}

// AddApplication adds an application or replaces the one with the same client id.
func (s *Sim) AddApplication(a Application) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addApplication(a)
}

func (s *Sim) addApplication(a Application) {
	s.world.Applications = slices.DeleteFunc(s.world.Applications,
		func(b Application) bool { return b.ClientID == a.ClientID })
	s.world.Applications = append(s.world.Applications, a)
}

// Assign adds a role assignment, effective after the propagation delay.
func (s *Sim) Assign(a Assignment) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	a.complete()
	s.assign(a)
}

func (s *Sim) assign(a Assignment) {
	s.made[a.Name] = s.now()
	s.world.Assignments = append(s.world.Assignments, a)
}

// Revoke removes a principal's role assignments.
func (s *Sim) Revoke(principal string) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world.Assignments = slices.DeleteFunc(s.world.Assignments,
		func(a Assignment) bool { return a.PrincipalID == principal })
}

// Assignments returns the role assignments.
func (s *Sim) Assignments() []Assignment {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.world.Assignments)
}

func (s *Sim) application(match func(Application) bool) (Application, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.world.Applications, match)
	if i < 0 {
		return Application{}, false
	}
	return s.world.Applications[i], true
}

func (s *Sim) user(match func(User) bool) (User, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.world.Users, match)
	if i < 0 {
		return User{}, false
	}
	return s.world.Users[i], true
}

// key is a public key and the time until which it is accepted; the zero time means no end.
type key struct {
	public crypto.PublicKey
	until  time.Time
}

// keys returns the public keys that may sign the application's assertions.
func (a Application) keys() ([]key, error) {
	var keys []key
	for _, text := range a.Certificates {
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return nil, fmt.Errorf("cannot read a certificate of %s: it is not PEM", a.Name)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("cannot read a certificate of %s: %w", a.Name, err)
		}
		keys = append(keys, key{public: cert.PublicKey, until: cert.NotAfter})
	}
	if a.PublicKey != "" {
		block, _ := pem.Decode([]byte(a.PublicKey))
		if block == nil {
			return nil, fmt.Errorf("cannot read the public key of %s: it is not PEM", a.Name)
		}
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("cannot read the public key of %s: %w", a.Name, err)
		}
		keys = append(keys, key{public: public})
	}
	return keys, nil
}
