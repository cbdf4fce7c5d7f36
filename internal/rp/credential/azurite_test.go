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
	get := func(url string) (int, string) {
		r := must(http.Get(url))
		defer r.Body.Close()
		return r.StatusCode, string(must(io.ReadAll(r.Body)))
	}
	must(0, created(w))
	link := w.url()
	status, text := get(link)
	equal(t, link, status, 200)
	bundle(t, text)
	must(0, w.moveCluster("https://moved.example"))
	w.work()
	if _, text := get(link); !strings.Contains(text, "https://moved.example") {
		t.Errorf("after new facts: %s", text)
	}
	if status, _ := get(strings.Replace(link, "sp=r", "sp=rw", 1)); status != 403 {
		t.Errorf("with other permissions: %d", status)
	}
	list := url + "?restype=container&comp=list&" + link[strings.Index(link, "?")+1:]
	if status, _ := get(list); status != 403 {
		t.Errorf("the URL lists the container: %d", status)
	}
	must(0, w.service.Delivery.Sweep(t.Context()))
	must(0, joined(w))
	if status, _ := get(link); status != 404 {
		t.Errorf("after the token was used: %d", status)
	}
	short := must(blobs.URL("x", time.Now().Add(-time.Minute)))
	if status, _ := get(short); status != 403 {
		t.Errorf("an expired URL: %d", status)
	}
	if err := blobs.Remove(t.Context(), "never/was"); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
}
