package stories

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/signing"
	"github.com/Azure/AKSFlexNode/internal/signing/rootkey"
)

// installation has the keys that sign the offers of a story's provider.
var installation = sync.OnceValue(func() keys { return newKeys(nil) })

// keys holds a root key, and a key that it has certified.
type keys struct {
	root             *rootkey.Root
	key, certificate []byte
}

// newKeys creates a key under a root; under a new one for nil.
func newKeys(root *rootkey.Root) keys {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	k, err := keys{root: root}, error(nil)
	if root == nil {
		k.root, err = rootkey.NewRoot(time.Now())
		must(err)
	}
	k.key = rootkey.NewKey()
	k.certify(time.Now())
	return k
}

// certify certifies the key with the root at a time.
func (k *keys) certify(at time.Time) {
	var err error
	if k.certificate, err = k.root.Certify(k.key, "key", at); err != nil {
		panic(err)
	}
}

func (k keys) sign(said signing.Statement) *api.Signature {
	said.Time = time.Now().UTC().Truncate(time.Second)
	signature, err := rootkey.Sign(k.key, said)
	if err != nil {
		panic(err)
	}
	return &api.Signature{Time: said.Time, Signature: signature, Certificate: k.certificate}
}

// signs signs a bundle, after an edit; one that cannot be read is unchanged.
func (k keys) signs(t testing.TB, bundle []byte) []byte {
	t.Helper()
	content, from, err := config.Covered(bundle)
	if err != nil {
		return bundle
	}
	var whole map[string]any
	if err := json.Unmarshal(bundle, &whole); err != nil {
		t.Fatal(err)
	}
	whole["root"] = k.root.Certificate()
	whole["signature"] = k.sign(signing.Statement{
		Kind: signing.Revision, UID: from.UID, Version: from.ConfigVersion, Epoch: from.Epoch,
		Content: content,
	})
	if bundle, err = json.Marshal(whole); err != nil {
		t.Fatal(err)
	}
	return bundle
}

// stone returns a tombstone.
func (k keys) stone(uid string) string {
	stone := api.Tombstone{DeletedAt: time.Now().UTC(), UID: uid, ConfigVersion: "7", Epoch: 1}
	stone.Signature = k.sign(signing.Statement{
		Kind: signing.Tombstone, UID: uid, Version: "7", Epoch: 1,
		Content: []byte(stone.DeletedAt.Format(time.RFC3339Nano)),
	})
	text, err := json.Marshal(stone)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// untrusted reports whether the machine reports that it does not trust a version.
func (s *serviceStory) untrusted(version string) func() bool {
	return func() bool {
		c, r := s.condition("ConfigurationAccepted"), s.provider.said().Config
		return c.Status == health.False && c.Reason == health.RevisionNotTrusted && r != nil &&
			r.Failed != nil && r.Failed.Version == version && r.Failed.Reason == c.Reason
	}
}

func (s *serviceStory) trusting() bool {
	r := s.provider.said().Config
	return s.condition("ConfigurationAccepted").Status == health.True && r != nil && r.Failed == nil
}

// A revision that was changed in the provider's store is refused, and the node stays unchanged.
// With the original row, and the same ETag, it follows.
func TestFollowsNoChangedRow(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.sleep(2 * time.Minute)
		kept := s.bundle()
		changed := s.delivery("8", monitored, readyTimeout("1m"), pods(42))
		edited(`"maxPods":42`, `"maxPods":43`)(&changed)
		s.provider.offers(changed)
		s.until(10*time.Minute, "the refusal is reported", s.untrusted("8"))
		s.rests(2 * time.Hour)
		s.healthy("110")
		if s.bundle() != kept || !s.registered() || !s.untrusted("8")() {
			t.Error("something was changed, or the refusal is not reported any more")
		}
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42)))
		s.until(10*time.Minute, "the version is applied", s.takes("42"))
		s.until(5*time.Minute, "no refusal is reported", s.trusting)
	})
}

// An old revision that is offered again is refused, although the installation has signed it.
func TestFollowsNoReplay(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42)))
		s.until(3*time.Minute, "the version is applied", s.takes("42"))
		s.provider.offers(s.delivery("6", monitored, readyTimeout("1m"), pods(41)))
		s.until(10*time.Minute, "the refusal is reported", s.untrusted("6"))
		s.rests(time.Hour)
		s.healthy("42")
		s.provider.offers(s.delivery("9", monitored, readyTimeout("1m"), pods(43)))
		s.until(10*time.Minute, "the next version is applied", s.takes("43"))
		s.until(5*time.Minute, "no refusal is reported", s.trusting)
	})
}

// A machine follows every key that the root of its configuration URL has certified, even with an
// expired certificate, and no other. A new URL brings another root.
func TestFollowsTheKeysOfItsRoot(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		signed := func(by keys, version string, n int) change.Delivery {
			d := s.delivery(version, monitored, readyTimeout("1m"), pods(n))
			d.Bundle = by.signs(t, d.Bundle)
			return d
		}
		s.provider.offers(signed(newKeys(installation().root), "8", 42)) // after `keys promote`
		s.until(3*time.Minute, "what the next key has signed is applied", s.takes("42"))
		old := newKeys(installation().root)
		old.certify(time.Now().AddDate(-5, 0, 0))
		s.provider.offers(signed(old, "9", 43))
		s.until(3*time.Minute, "what a key without a valid certificate has signed is applied",
			s.takes("43"))
		if log := s.log.String(); !strings.Contains(log, "has expired") {
			t.Errorf("the log does not say that the certificate has expired:\n%s", log)
		}
		other := newKeys(nil)
		s.provider.offers(signed(other, "10", 44))
		s.until(10*time.Minute, "the refusal is reported", s.untrusted("10"))
		s.rests(time.Hour)
		s.healthy("43")
		// A person brings the URL of the other installation.
		if err := change.Receive(t.Context(), s.agent(), signed(other, "10", 44)); err != nil {
			t.Fatal(err)
		}
		s.provider.offers(signed(other, "11", 45))
		s.until(10*time.Minute, "what the other installation has signed is applied", s.takes("45"))
		s.provider.offers(signed(installation(), "12", 46))
		s.until(10*time.Minute, "the former root is not trusted", s.untrusted("12"))
	})
}

// The provider is polled at another address only if a signed revision has it, and the provider has
// answered there (TestUnreachableEndpointWaits).
func TestFollowsNoChangedEndpoint(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.sleep(2 * time.Minute)
		s.provider.answersAt("thief.example", func(r *http.Request) (*http.Response, error) {
			t.Errorf("%s %s", r.Method, r.URL)
			return nil, errors.New("no answer")
		})
		changed := s.delivery("8", monitored, at(wrongHost), readyTimeout("1m"), pods(42))
		edited(wrongHost, "thief.example")(&changed)
		s.provider.offers(changed)
		s.until(10*time.Minute, "the refusal is reported", s.untrusted("8"))
		s.rests(time.Hour)
		s.healthy("110")
		s.provider.offers(s.delivery("8", monitored, at(wrongHost), readyTimeout("1m"), pods(42)))
		s.until(10*time.Minute, "the version is applied", s.takes("42"))
		s.until(5*time.Minute, "the provider is asked there", func() bool {
			return s.asked() == wrongHost
		})
	})
}
