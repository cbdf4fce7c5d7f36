package artifact

import (
	"crypto/sha256"
	"net/http/httptest"
	"testing"
)

// BenchmarkFetch measures the whole way of an artifact - download over loopback, digest,
// decompression, files, fsync - against nothing but the SHA-256 of the same bytes.
func BenchmarkFetch(b *testing.B) {
	const size = 32 << 20
	half := append(noise(1, size/2), make([]byte, size/2)...)
	tarred := makeTar(b, []file{{name: "bin/containerd", mode: 0o755, body: string(half)}})
	packed, targz := zst(half), gz(tarred)
	plain, arc := binary(Kubelet, half), binary(Containerd, targz)
	arc.Archive = true
	measure := func(name string, a Artifact, body []byte, bytes int, mirror bool) {
		b.Run(name, func(b *testing.B) {
			srv := httptest.NewServer(serve(body, ""))
			defer srv.Close()
			a.URL = srv.URL + "/file"
			b.SetBytes(int64(bytes))
			for b.Loop() {
				b.StopTimer()
				f := &Fetcher{Store: b.TempDir(), Artifacts: []Artifact{a},
					Source: Source{HTTP: NewClient(nil)}}
				if mirror {
					f.Source.Mirrors = []string{srv.URL}
				}
				b.StartTimer()
				if err := run(b.Context(), f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("sha256", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if sha256.Sum256(half) == [32]byte{} {
				b.Fatal("no digest")
			}
		}
	})
	measure("binary", plain, half, size, false)
	measure("binary.zst", plain, packed, size, true)
	measure("tar.gz", arc, targz, size, false)
}
