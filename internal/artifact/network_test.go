package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// network is a set of hosts in memory, reached without TLS under https URLs. It works inside a
// synctest bubble, where the clock stands still until everything waits.
type network struct {
	mu    sync.Mutex
	hosts map[string]*memListener
	log   []string
}

type memListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *memListener) Close() error   { return nil }
func (l *memListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func newNetwork(t testing.TB, hosts map[string]http.HandlerFunc) *network {
	n := &network{hosts: map[string]*memListener{}}
	for host, handler := range hosts {
		l := &memListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		n.hosts[host] = l
		srv := &http.Server{
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n.mu.Lock()
				n.log = append(n.log, host+" "+filepath.Base(r.URL.Path)+" "+r.Header.Get("Range"))
				n.mu.Unlock()
				handler(w, r)
			}),
		}
		go srv.Serve(l)
		t.Cleanup(func() { close(l.closed); srv.Close() })
	}
	return n
}

func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(addr)
	l, ok := n.hosts[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *network) client(t testing.TB) *http.Client {
	c := NewClient(nil)
	tr := c.Transport.(*http.Transport)
	tr.DialContext, tr.DialTLSContext = n.dial, n.dial
	t.Cleanup(tr.CloseIdleConnections)
	return c
}

// requests tells what was asked so far, as "host file range".
func (n *network) requests() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.log...)
}

// serve answers with b, ranges included.
func serve(b []byte, etag string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}

// cut answers with the whole length and ends the connection after n bytes.
func cut(b []byte, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		w.Write(b[:n])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

// status answers every request with one status.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// page answers with a web page, as the login of a guest network does.
func page(contentType string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		io.WriteString(w, "\n<!DOCTYPE html><html><body>Welcome, guest. Accept the "+
			"terms.</body></html>")
	}
}

// sequence gives the i-th request to the i-th handler and all further ones to the last.
func sequence(handlers ...http.HandlerFunc) http.HandlerFunc {
	var mu sync.Mutex
	i := 0
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		h := handlers[min(i, len(handlers)-1)]
		i++
		mu.Unlock()
		h(w, r)
	}
}

// paths gives a request to the handler of its file name; others are not found.
func paths(handlers map[string]http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if h, ok := handlers[filepath.Base(r.URL.Path)]; ok {
			h(w, r)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}
}

// noise gives n bytes that do not compress, always the same for one seed.
func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func sha(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// binary is an artifact whose published file is b.
func binary(name Name, b []byte) Artifact {
	return Artifact{
		Name: name, Version: "1.2.3", Arch: "amd64", ID: sha(b),
		Late: projects[name].late, URL: "https://upstream/v1.2.3/" + string(name),
	}
}

// file is one entry of an archive made for a test.
type file struct {
	name string
	mode int64
	body string
	kind byte
	link string
	size int64
}

func makeTar(t testing.TB, files []file) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.body)),
			Typeflag: tar.TypeReg, Linkname: f.link}
		if f.kind != 0 {
			h.Typeflag = f.kind
		}
		if f.size != 0 {
			h.Size = f.size
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, f.body)
	}
	w.Close()
	return buf.Bytes()
}

func gz(b []byte) []byte {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	w.Write(b)
	w.Close()
	return buf.Bytes()
}

func zst(b []byte) []byte {
	w, _ := zstd.NewWriter(nil)
	return w.EncodeAll(b, nil)
}

// archive is an artifact with two files, and its published bytes.
func archive(t testing.TB) (a Artifact, targz, plain []byte) {
	plain = makeTar(t, []file{
		{name: "bin/", mode: 0o700, kind: tar.TypeDir},
		{name: "bin/containerd", mode: 0o700, body: string(noise(7, 300_000))},
		{name: "./README", mode: 0o4600, body: "read me"},
	})
	targz = gz(plain)
	a = binary(Containerd, targz)
	a.Archive, a.TarSHA256, a.URL = true, sha(plain), "https://upstream/v1.2.3/containerd.tar.gz"
	return a, targz, plain
}

// rig is a Fetcher with an empty store on a network.
type rig struct {
	*Fetcher
	net    *network
	events []Event
}

func newRig(t testing.TB, mirrors []string, hosts map[string]http.HandlerFunc) *rig {
	r := &rig{net: newNetwork(t, hosts)}
	r.Fetcher = &Fetcher{
		Store:  t.TempDir(),
		Source: Source{Mirrors: mirrors, HTTP: r.net.client(t)},
	}
	r.Events = func(e Event) {
		if e.Kind != Done && present(r.Store, e.Artifact.ID) {
			t.Errorf("%s is visible in the store before it is verified", e.Artifact)
		}
		r.events = append(r.events, e)
	}
	return r
}

// Run fetches these artifacts.
func (r *rig) Run(ctx context.Context, arts []Artifact) error {
	r.Artifacts = arts
	return run(ctx, r.Fetcher)
}

// run fetches all artifacts and returns when nothing is being fetched any more.
func run(ctx context.Context, f *Fetcher) error {
	d := f.Start(ctx)
	d.Idle(context.Background())
	defer d.End()
	return d.WaitAll(context.Background(), nil, nil)
}

// again is a second run, as after a restart of the process.
func (r *rig) again() *rig {
	next := &rig{net: r.net}
	next.Fetcher = &Fetcher{Store: r.Store, Source: r.Source}
	next.Events = func(e Event) { next.events = append(next.events, e) }
	return next
}

// kinds tells the events but progress, as words.
func (r *rig) kinds() string {
	var words []string
	for _, e := range r.events {
		if e.Kind != Progress {
			words = append(words, string(e.Kind))
		}
	}
	return strings.Join(words, " ")
}

// leftovers lists what is in the store beside complete entries.
func (r *rig) leftovers(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(r.Store)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !isDigest(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// wantFile checks a file of an entry.
func (r *rig) wantFile(t testing.TB, a Artifact, name string, content []byte, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(r.Store, a.ID, name)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, content) {
		t.Errorf("%s has wrong bytes", name)
	}
	if info, _ := os.Lstat(path); info.Mode() != mode {
		t.Errorf("%s has mode %v, want %v", name, info.Mode(), mode)
	}
}
