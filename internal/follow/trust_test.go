package follow

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/internal/signing"
	"github.com/Azure/AKSFlexNode/internal/signing/rootkey"
)

// testRoot is an installation with a key that signs.
type testRoot struct {
	root        *rootkey.Root
	key         []byte
	certificate []byte
}

func newRoot(at time.Time) testRoot {
	root, err := rootkey.NewRoot(at)
	if err != nil {
		panic(err)
	}
	key := rootkey.NewKey()
	certificate, err := root.Certify(key, "key", at)
	if err != nil {
		panic(err)
	}
	return testRoot{root, key, certificate}
}

// trusted is the installation that machines of tests trust.
var trusted = sync.OnceValue(func() testRoot { return newRoot(time.Now()) })

func (r testRoot) sign(said signing.Statement) *agentapi.Signature {
	said.Time = time.Now().UTC().Truncate(time.Second)
	signature, err := rootkey.Sign(r.key, said)
	if err != nil {
		panic(err)
	}
	return &agentapi.Signature{Time: said.Time, Signature: signature, Certificate: r.certificate}
}

// bundle is one with secrets, whose configuration is signed without them.
func (r testRoot) bundle(t *testing.T) string {
	t.Helper()
	by := r.sign(signing.Statement{
		Kind: signing.Revision, UID: "u", Version: "7", Epoch: 2,
		Content: []byte(`{"azure":{"bootstrapToken":{},"servicePrincipal":{"clientId":"c"}},"n":1e3}`),
	})
	return fmt.Sprintf(`{"schemaVersion":"1.0","enrolmentSecret":"e","config":{"n":1e3,"azure":{
		"servicePrincipal":{"clientId":"c","clientSecret":"s"},"bootstrapToken":{"token":"t"}}},
		"resource":{"id":"/x","uid":"u","configVersion":"7","epoch":2},
		"signature":{"time":%q,"signature":%q,"certificate":%q}}`, by.Time.Format(time.RFC3339),
		base64.StdEncoding.EncodeToString(by.Signature),
		base64.StdEncoding.EncodeToString(by.Certificate))
}

// Nothing that is read of a bundle can be changed but its secrets.
func TestVerify(t *testing.T) {
	r := newRoot(time.Now())
	root := r.root.Certificate()
	for name, tt := range map[string]struct {
		old, new string
		root     []byte
		// unreadable is a bundle whose signature is not looked at.
		holds, unreadable bool
	}{
		"as it was signed":   {holds: true},
		"another secret":     {old: `"s"`, new: `"S"`, holds: true},
		"changed content":    {old: `"n":1e3`, new: `"n":1000`},
		"a setting more":     {old: `"n":1e3`, new: `"n":1e3,"artifacts":{}`},
		"one section less":   {old: `,"bootstrapToken":{"token":"t"}`, new: ``},
		"a name given twice": {old: `"n":1e3`, new: `"n":2,"n":1e3`, unreadable: true},
		"other uid":          {old: `"uid":"u"`, new: `"uid":"v"`},
		"other version":      {old: `"7"`, new: `"8"`},
		"other epoch":        {old: `"epoch":2`, new: `"epoch":3`},
		"no bundle":          {old: `"schemaVersion":"1.0",`, new: ``, unreadable: true},
		"not signed":         {old: `"signature":{`, new: `"later":{`},
		"other root":         {root: newRoot(time.Now()).root.Certificate()},
		"no root":            {root: []byte{}},
		"resource in its way": {old: `"resource":{`, new: `"resource":{"uid":"v"},"resource":{`,
			unreadable: true},
	} {
		t.Run(name, func(t *testing.T) {
			anchor := root
			if tt.root != nil {
				anchor = tt.root
			}
			bundle := r.bundle(t)
			changed := strings.Replace(bundle, tt.old, tt.new, 1)
			if tt.old != "" && changed == bundle {
				t.Fatal("nothing is changed")
			}
			_, from, err := Verify([]byte(changed), anchor)
			_, untrusted := errors.AsType[*UntrustedError](err)
			if (err == nil) != tt.holds || !tt.holds && untrusted == tt.unreadable {
				t.Fatalf("verified: %v", err)
			}
			if err == nil && (from.UID != "u" || from.ConfigVersion != "7" || from.Epoch != 2) {
				t.Errorf("it is of %+v", from)
			}
		})
	}
}

// A certificate that has expired is reported, and refuses nothing.
func TestVerifyByAnExpiredKey(t *testing.T) {
	r := newRoot(time.Now().AddDate(-10, 0, 0))
	proof, _, err := Verify([]byte(r.bundle(t)), r.root.Certificate())
	if err != nil || !proof.Until.Before(time.Now()) || time.Since(proof.Signed) > time.Minute {
		t.Errorf("%+v, %v", proof, err)
	}
}

// A machine is not given back for a tombstone that its installation has not signed for it, and is
// for the right one then.
func TestFollowerDeletedByAnother(t *testing.T) {
	earlier := trusted().stone(nodeUID)
	earlier.Epoch = 0
	unsigned := trusted().stone(nodeUID)
	unsigned.Signature = nil
	for name, stone := range map[string]agentapi.Tombstone{
		"of another root": newRoot(time.Now()).stone(nodeUID), "of another epoch": earlier,
		"unsigned": unsigned,
	} {
		t.Run(name, func(t *testing.T) {
			following(t, func(t *testing.T, p *provider, m *fakeMachine) {
				time.Sleep(time.Minute)
				p.answers(shown(stone))
				time.Sleep(24 * time.Hour)
				m.locked(func() {
					if _, untrusted := errors.AsType[*UntrustedError](m.why); m.deleted || !untrusted {
						t.Errorf("deleted: %t, %v", m.deleted, m.why)
					}
				})
				p.answers(nil)
				time.Sleep(time.Hour)
				m.locked(func() {
					if m.why != nil {
						t.Errorf("after a good answer: %v", m.why)
					}
				})
				p.answers(tombstone(nodeUID))
				time.Sleep(time.Hour)
				m.locked(func() {
					if !m.deleted {
						t.Errorf("the genuine tombstone does not count: %v", m.why)
					}
				})
			})
		})
	}
}

// The genuine tombstone of an epoch before that of the machine's configuration was undone.
func TestFollowerOldTombstone(t *testing.T) {
	following(t, func(t *testing.T, p *provider, m *fakeMachine) {
		m.locked(func() { m.received.Epoch, m.applied.Epoch = 2, 2 })
		p.answers(tombstone(nodeUID))
		time.Sleep(24 * time.Hour)
		m.locked(func() {
			if _, untrusted := errors.AsType[*UntrustedError](m.why); m.deleted || !untrusted {
				t.Errorf("deleted: %t, %v", m.deleted, m.why)
			}
		})
	})
}
