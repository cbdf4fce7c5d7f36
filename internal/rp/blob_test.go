//go:build azurite

package rp

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// What Azure's storage emulator is known by.
const (
	emulatorAccount = "devstoreaccount1"
	emulatorKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Configurations behind Azure Blob Storage, against Azurite: which `make azurite` starts at $FLEXNODE_AZURITE.
func TestAzurite(t *testing.T) {
	base := os.Getenv("FLEXNODE_AZURITE")
	url := base + "/" + emulatorAccount + "/configs"
	credential := must(container.NewSharedKeyCredential(emulatorAccount, emulatorKey))
	made := must(container.NewClientWithSharedKeyCredential(url, credential, nil))
	if _, err := made.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	blobs, err := NewBlobBundles(url, emulatorAccount, emulatorKey, azcore.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.register("")
	w.server.Bundles = blobs
	w.clock.nanos.Store(time.Now().UnixNano()) // the service has its own clock
	get := func(url string) (int, string) {
		r, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		return r.StatusCode, string(must(io.ReadAll(r.Body)))
	}
	_, text := w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	link := shownNode(t, text).Properties.ConfigURL
	status, bundle := get(link)
	if status != 200 || token(t, bundle) == "" {
		t.Fatalf("%s: %d %s", link, status, bundle)
	}
	if status, _ := get(strings.Replace(link, "sp=r", "sp=rw", 1)); status != 403 {
		t.Errorf("with other permissions: %d", status)
	}
	if status, _ := get(url + "?restype=container&comp=list&" + link[strings.Index(link, "?")+1:]); status != 403 {
		t.Errorf("the URL lists the container: %d", status)
	}
	if got := w.ask(csr(t, "first", token(t, bundle)[:6], "n", newKey(t))); got != "Approved" {
		t.Errorf("the request: %q", got)
	}
	if status, _ := get(link); status != 404 {
		t.Errorf("after the token was used: %d", status)
	}
	short := must(blobs.URL("x", time.Now().Add(-time.Minute)))
	if status, _ := get(short); status != 403 {
		t.Errorf("an expired URL: %d", status)
	}
	if err := blobs.Delete(t.Context(), "never/was"); err != nil {
		t.Errorf("deleting what is not there: %v", err)
	}
}
