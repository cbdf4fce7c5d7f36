package follow

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const secretPart = "sig=c2VjcmV0"

// roundTrip answers requests by a handler, without a network.
type roundTrip struct{ http.Handler }

func (h roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// fetching is a Fetcher whose server is a handler.
func fetching(t *testing.T, handle http.HandlerFunc) (Fetcher, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	client := NewClient(nil, nil)
	client.Transport = roundTrip{handle}
	return Fetcher{Client: client, For: 5 * time.Minute, Waiting: func(err error, _ time.Duration) {
		fmt.Fprintln(log, err)
	}}, log
}

func aURL(t *testing.T) URL {
	t.Helper()
	u, err := ParseURL("https://provider.example/c/edge-1.json?se=2100-01-01T00:00:00Z&" + secretPart)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func answer(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// What may pass is tried again, and Retry-After is kept to.
func TestFetchTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), 0
		f, log := fetching(t, func(w http.ResponseWriter, r *http.Request) {
			switch asked++; asked {
			case 1:
				panic(http.ErrAbortHandler)
			case 2:
				w.Header().Set("Retry-After", "60")
				w.WriteHeader(http.StatusTooManyRequests)
			case 3:
				answer(403, "text/html", "<html>Blocked</html>")(w, r)
			case 4:
				answer(200, "text/html", "<html>Please sign in</html>")(w, r)
			case 5:
				w.Header().Set("Location", "http://elsewhere.example/?"+secretPart)
				w.WriteHeader(http.StatusFound)
			default:
				answer(200, "application/json", `{"config":{}}`)(w, r)
			}
		})
		f.Client.Transport = breaking{f.Client.Transport}
		bundle, err := f.Fetch(t.Context(), aURL(t))
		if err != nil || string(bundle) != `{"config":{}}` {
			t.Fatalf("got %q, %v", bundle, err)
		}
		if took := time.Since(began); asked != 6 || took < time.Minute || took > 3*time.Minute {
			t.Errorf("asked %d times in %s", asked, took)
		}
		for _, want := range []string{"429", `403 Forbidden, with "text/html"`, "text/html",
			"sign-in page", "redirects to http://"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, log)
			}
		}
		if strings.Contains(log.String(), secretPart) {
			t.Errorf("the log has the URL:\n%s", log)
		}
	})
}

// breaking makes a handler's panic a broken connection.
type breaking struct{ http.RoundTripper }

func (b breaking) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("connection reset by peer")
		}
	}()
	return b.RoundTripper.RoundTrip(r)
}

func TestFetchDeadURL(t *testing.T) {
	const alive, expired = "2100-01-01T00:00:00Z", "2020-01-01T00:00:00Z"
	for _, c := range []struct {
		status      int
		until, want string
	}{
		{403, alive, "already joined with the URL, or it was revoked or replaced; ask for a new URL"},
		{404, alive, "already joined with the URL"},
		{403, expired, "the URL has expired at 2020-01-01 00:00:00 UTC; ask for a new URL"},
		{410, "", "already joined with the URL"},
		{400, alive, "it answers 400 Bad Request; ask for a new URL"},
	} {
		asked := 0
		f, _ := fetching(t, func(w http.ResponseWriter, r *http.Request) {
			asked++
			answer(c.status, "application/xml", "<Error/>")(w, r)
		})
		u, err := ParseURL("https://provider.example/x?se=" + c.until + "&" + secretPart)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Fetch(t.Context(), u)
		_, isDead := errors.AsType[*DeadError](err)
		if !isDead || !strings.Contains(err.Error(), c.want) || asked != 1 {
			t.Errorf("%d, until %q: asked %d times, got %v", c.status, c.until, asked, err)
		}
	}
}

func TestFetchTellsOfTheClock(t *testing.T) {
	f, _ := fetching(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
		answer(403, "application/json", "{}")(w, nil)
	})
	_, err := f.Fetch(t.Context(), aURL(t))
	if err == nil || !strings.Contains(err.Error(), "the clock of this machine is") {
		t.Errorf("got %v", err)
	}
}

// Whatever answers, it is refused with a sentence and bounded in time and memory.
func TestFetchRefuses(t *testing.T) {
	bomb := &bytes.Buffer{}
	z := gzip.NewWriter(bomb)
	z.Write(make([]byte, 100<<20))
	z.Close()
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		want   string
	}{
		"100 MB": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write(make([]byte, 100<<20))
		}, "larger than 1 MiB"},
		"gzip bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bomb.Bytes())
		}, "it is encoded as"},
		"captive portal": {answer(200, "text/html", "<html>"), "a sign-in page or a proxy"},
		"redirect to http": {redirecting("http://a.example/?" + secretPart),
			"redirects to http://a.example,"},
		"server error": {answer(500, "text/plain", "no"), "it answers 500"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := fetching(t, c.handle)
			f.For = 0
			_, err := f.Fetch(t.Context(), aURL(t))
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), secretPart) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func redirecting(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusMovedPermanently)
	}
}

// A server whose certificate is not trusted is not asked.
func TestFetchWrongCertificate(t *testing.T) {
	asked := false
	server := httptest.NewUnstartedServer(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { asked = true }))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS()
	defer server.Close()
	u, err := ParseURL(server.URL + "/x?" + secretPart)
	if err != nil {
		t.Fatal(err)
	}
	f := Fetcher{Client: NewClient(nil, nil)}
	_, err = f.Fetch(t.Context(), u)
	if err == nil || !strings.Contains(err.Error(), "certificate") || asked ||
		strings.Contains(err.Error(), secretPart) {
		t.Errorf("asked=%t, got %v", asked, err)
	}
}

// A body that never ends, and comes slowly, ends with the time of a try.
func TestFetchEndlessBody(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(" "))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	u, err := ParseURL(server.URL + "/x?" + secretPart)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	f := Fetcher{Client: server.Client(), For: time.Hour}
	if _, err := f.Fetch(ctx, u); err == nil || strings.Contains(err.Error(), secretPart) {
		t.Errorf("got %v", err)
	}
}

func TestParseURL(t *testing.T) {
	for _, text := range []string{
		"", "edge-1", "http://a.example/" + secretPart, "https:///x?" + secretPart,
		"https://me:" + secretPart + "@a.example/", "https://a.example/\x7f" + secretPart,
	} {
		u, err := ParseURL(text)
		if err == nil {
			t.Errorf("%q is taken for a configuration URL: %v", text, u)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), secretPart) {
			t.Errorf("the error quotes the URL: %v", err)
		}
	}
}

func TestURLHasNoText(t *testing.T) {
	u := aURL(t)
	log := &bytes.Buffer{}
	slog.New(slog.NewTextHandler(log, nil)).Info("x", "url", u)
	text, err := json.Marshal(map[string]any{"url": u})
	if err != nil {
		t.Fatal(err)
	}
	all := log.String() + string(text) + fmt.Sprintf("%v %s %+v %#v", u, u, u, u)
	if strings.Contains(all, "sig") || strings.Contains(all, "edge-1") {
		t.Errorf("a URL prints as %s", all)
	}
	other, err := ParseURL("https://provider.example/c/edge-1.json?" + secretPart + "x")
	if err != nil || u.Digest() == other.Digest() || u.Digest() != aURL(t).Digest() {
		t.Errorf("digests do not tell URLs apart: %v", err)
	}
}
