package credential

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// fakeBlobs is the part of the Blob service that the provider uses: blobs of one container, with
// metadata and conditions. It does not check requests with a SAS.
type fakeBlobs struct {
	blobs  map[string]fakeBlob // by path
	tag    int
	down   bool
	before func() // is called once, before the next request that writes
}

type fakeBlob struct {
	text, tag string
	meta      map[string]string
}

func (f *fakeBlobs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if before := f.before; before != nil && r.Method != "GET" && r.Method != "HEAD" {
		f.before = nil
		before()
	}
	there, found := f.blobs[r.URL.Path]
	fail := func(status int, code string) {
		w.Header().Set("x-ms-error-code", code)
		w.WriteHeader(status)
	}
	switch {
	case f.down:
		fail(403, "AuthorizationFailure")
	case r.URL.Query().Get("comp") == "list":
		f.list(w)
	case r.Method == http.MethodPut:
		if r.Header.Get("If-None-Match") == "*" && found {
			fail(409, "BlobAlreadyExists")
			return
		}
		if on := r.Header.Get("If-Match"); on != "" && on != there.tag {
			fail(412, "ConditionNotMet")
			return
		}
		f.put(w, r)
	case !found:
		fail(404, "BlobNotFound")
	case r.Method == http.MethodDelete:
		delete(f.blobs, r.URL.Path)
		w.WriteHeader(202)
	default:
		w.Header().Set("ETag", there.tag)
		for name, value := range there.meta {
			w.Header().Set("x-ms-meta-"+name, value)
		}
		_, _ = io.WriteString(w, there.text)
	}
}

func (f *fakeBlobs) put(w http.ResponseWriter, r *http.Request) {
	text, meta := must(io.ReadAll(r.Body)), map[string]string{}
	for name := range r.Header {
		if short, ok := strings.CutPrefix(strings.ToLower(name), "x-ms-meta-"); ok {
			meta[short] = r.Header.Get(name)
		}
	}
	f.tag++
	f.blobs[r.URL.Path] = fakeBlob{string(text), fmt.Sprintf(`"%d"`, f.tag), meta}
	w.Header().Set("ETag", f.blobs[r.URL.Path].tag)
	w.WriteHeader(201)
}

func (f *fakeBlobs) list(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprint(w, `<?xml version="1.0"?><EnumerationResults><Blobs>`)
	for path, b := range f.blobs {
		fmt.Fprintf(w, "<Blob><Name>%s</Name><Properties></Properties><Metadata>",
			strings.TrimPrefix(path, "/configs/"))
		for name, value := range b.meta {
			fmt.Fprintf(w, "<%s>%s</%s>", name, value, name)
		}
		fmt.Fprint(w, "</Metadata></Blob>")
	}
	fmt.Fprint(w, "</Blobs><NextMarker/></EnumerationResults>")
}

// withBlobs makes a world deliver through a Blob service.
func withBlobs(t *testing.T) (*world, *fakeBlobs, *Blobs) {
	w := newWorld(t)
	f := &fakeBlobs{blobs: map[string]fakeBlob{}}
	server := httptest.NewTLSServer(f)
	t.Cleanup(server.Close)
	blobs := must(NewBlobs(w.store(), w.clock.Now, server.URL+"/configs", "account",
		base64.StdEncoding.EncodeToString([]byte("key")), azcore.ClientOptions{
			Transport: server.Client(), Retry: policy.RetryOptions{MaxRetries: -1},
		}))
	w.service.Delivery = blobs
	return w, f, blobs
}

// A configuration in Blob Storage exists while its credential is live, and is deleted as soon as it
// is used, even if that takes several attempts.
func TestBlobs(t *testing.T) {
	t.Parallel()
	w, f, _ := withBlobs(t)
	must(0, created(w))
	key := w.node().Credential
	link := must(url.Parse(w.url()))
	path := "/configs/" + key + ".json"
	b, found := f.blobs[path]
	if !found || link.Path != path {
		t.Fatalf("%v; the URL is %s", f.blobs, link)
	}
	if q := link.Query(); q.Get("sr") != "b" || q.Get("sp") != "r" || q.Get("sig") == "" ||
		q.Get("se") != "2026-05-02T12:00:00Z" {
		t.Errorf("the SAS is %s", link.RawQuery)
	}
	if b.meta["expires"] != "2026-05-02T12:00:00Z" || b.meta["configversion"] == "" {
		t.Errorf("the metadata are %v", b.meta)
	}
	bundle(t, b.text)
	f.down = true
	w.consume(key)
	equal(t, "the blobs that are left", len(f.blobs), 1)
	equal(t, "a blob that cannot be deleted is an error", w.step() != nil, true)
	f.down = false
	must(0, w.step())
	equal(t, "the blobs that are left", len(f.blobs), 0)
	equal(t, "the credential is", w.credential(key).State, store.Consumed)
	must(0, w.regenerate())
	w.work()
	must(0, w.delete())
	w.work()
	w.clock.Pass(Joining)
	w.work()
	equal(t, "what is left", len(f.blobs), 0)
}

// An older configuration never replaces a newer one: a paused replica resumes, in its first upload
// or in a later one.
func TestAnOlderBlobDoesNotReplaceANewerOne(t *testing.T) {
	t.Parallel()
	w, f, blobs := withBlobs(t)
	put := func(text string, version int64) {
		w.change(func(v *store.View) error {
			return blobs.Put(v, "k", []byte(text), version, w.clock.Now())
		})
	}
	f.before = func() { put("one", 1) }
	put("none", 0)
	equal(t, "there", f.blobs["/configs/k.json"].text, "one")
	f.before = func() { put("three", 3) }
	put("two", 2)
	put("one", 1)
	equal(t, "there", f.blobs["/configs/k.json"].text, "three")
	put("three again", 3)
	equal(t, "there", f.blobs["/configs/k.json"].text, "three again")
}

// A blob is removed if its credential was removed during the upload.
func TestABlobOfACredentialThatIsGone(t *testing.T) {
	t.Parallel()
	w, f, _ := withBlobs(t)
	must(0, w.put(withToken, true, true))
	f.before = func() {
		must(0, w.delete())
		w.work()
	}
	must(0, w.step())
	equal(t, "the blobs that are left", len(f.blobs), 0)
	equal(t, "the Secrets that are left", len(w.cluster.secrets), 0)
}

// A replica that was paused in an upload, and has lost the cluster when it resumes, removes the
// blob of a credential that was used meanwhile.
func TestABlobOfAFormerOwner(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		w, f, _ := withBlobs(t)
		ctx := t.Context()
		must(0, w.put(withToken, true, true))
		key := w.node().Credential
		own := func() store.Condition {
			at := must(w.memory.Commit(ctx, nil, []store.Write{{Key: "/owner", Value: []byte("x")}}))
			return store.Condition{Key: "/owner", Revision: at}
		}
		fence := own()
		if again {
			w.work()
			must(0, w.updateNode(func(v *store.View, n *flexnode.Node) {
				must(0, w.rendered(v, n, n.Revision+1))
			}))
		}
		f.before = func() {
			own()
			w.work()
			w.consume(key)
		}
		if _, err := w.service.Step(ctx, key, w.cluster, fence); !errors.Is(err, store.ErrFenced) {
			t.Errorf("again %v: %v", again, err)
		}
		equal(t, "the credential is", w.credential(key).State, store.Consumed)
		equal(t, "the Secrets", len(w.cluster.secrets), 1)
		equal(t, fmt.Sprintf("again %v: what is left", again), len(f.blobs), 0)
	}
}

// The sweep deletes expired blobs without a credential, and leaves others' blobs alone.
func TestSweepOfBlobs(t *testing.T) {
	t.Parallel()
	w, f, blobs := withBlobs(t)
	must(0, created(w))
	kept := "/configs/" + w.node().Credential + ".json"
	w.change(func(v *store.View) error {
		return errors.Join(
			blobs.Put(v, clusterKey+"/old", []byte("x"), 1, w.clock.Now().Add(time.Minute)),
			blobs.Put(v, clusterKey+"/young", []byte("x"), 1, w.clock.Now().Add(time.Hour)))
	})
	f.blobs["/configs/another.json"] = fakeBlob{text: "another"}
	must(0, w.service.Delivery.Sweep(t.Context()))
	equal(t, "what is left", len(f.blobs), 4)
	w.clock.Pass(time.Minute)
	must(0, w.service.Delivery.Sweep(t.Context()))
	if _, found := f.blobs["/configs/"+clusterKey+"/old.json"]; found || len(f.blobs) != 3 {
		t.Errorf("left are %v", f.blobs)
	}
	w.clock.Pass(Lifetime)
	must(0, w.service.Delivery.Sweep(t.Context()))
	if _, found := f.blobs[kept]; !found || len(f.blobs) != 2 {
		t.Errorf("left are %v; one of a credential is not swept", f.blobs)
	}
	f.down = true
	err := w.service.Delivery.Sweep(t.Context())
	equal(t, "a sweep that did not happen is an error", err != nil, true)
}
