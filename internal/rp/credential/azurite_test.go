//go:build azurite

package credential

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

// The account of Azure's storage emulator.
const (
	emulatorAccount = "devstoreaccount1"
	emulatorKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq" +
		"/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Configurations behind Azure Blob Storage, against Azurite, which `make azurite` starts at
// $FLEXNODE_AZURITE.
func TestAzurite(t *testing.T) {
	base := os.Getenv("FLEXNODE_AZURITE")
	url := base + "/" + emulatorAccount + "/configs"
	shared := must(container.NewSharedKeyCredential(emulatorAccount, emulatorKey))
	made := must(container.NewClientWithSharedKeyCredential(url, shared, nil))
	must(made.Create(t.Context(), nil))
	w := newWorld(t)
	w.clock.Set(time.Now()) // the service has its own clock
	blobs := must(NewBlobs(w.store(), w.clock.Now, url, emulatorAccount, emulatorKey,
		azcore.ClientOptions{}))
	w.service.Delivery = blobs
	get := func(what, url string, want int) string {
		r := must(http.Get(url))
		defer r.Body.Close()
		equal(t, what, r.StatusCode, want)
		return string(must(io.ReadAll(r.Body)))
	}
	must(0, created(w))
	link := w.url()
	bundle(t, get(link, link, 200))
	must(0, w.moveCluster("https://moved.example"))
	w.work()
	if text := get("after new facts", link, 200); !strings.Contains(text, "https://moved.example") {
		t.Errorf("after new facts: %s", text)
	}
	get("with other permissions", strings.Replace(link, "sp=r", "sp=rw", 1), 403)
	list := url + "?restype=container&comp=list&" + link[strings.Index(link, "?")+1:]
	get("a list of the container", list, 403)
	must(0, w.service.Delivery.Sweep(t.Context()))
	must(0, joined(w))
	get("after the token was used", link, 404)
	get("an expired URL", must(blobs.URL("x", time.Now().Add(-time.Minute))), 403)
	must(0, blobs.Remove(t.Context(), "never/was"))
}
