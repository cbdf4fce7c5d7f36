package stories

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/signing"
)

// installation has the keys that sign what the provider of a story offers.
var installation = sync.OnceValue(func() keys { return newKeys(nil) })

// keys are a root key, and one that it has certified.
type keys struct {
	root             *signing.Root
	key, certificate []byte
}

// newKeys makes a key under a root; under another one for nil.
func newKeys(root *signing.Root) keys {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	k, err := keys{root: root}, error(nil)
	if root == nil {
		k.root, err = signing.NewRoot(time.Now())
		must(err)
	}
	k.key, err = signing.NewKey()
	must(err)
	k.certificate, err = k.root.Certify(k.key, "key", time.Now())
	must(err)
	return k
}

func (k keys) sign(said signing.Statement) *api.Signature {
	said.Time = time.Now().UTC().Truncate(time.Second)
	signature, err := signing.Sign(k.key, said)
	if err != nil {
		panic(err)
	}
	return &api.Signature{Time: said.Time, Signature: signature, Certificate: k.certificate}
}

// signs signs a bundle, as it is after an edit; one that cannot be read remains.
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

// stone is a tombstone.
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
