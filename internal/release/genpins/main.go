// Program genpins adds digests of releases to internal/release/pins.txt, from lists or from the
// checksum files that projects publish, with the lengths that servers report. Existing pins are
// kept; another digest or length for a pinned release is an error, since a release never changes.
// `make pins` runs it.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/release"
)

func main() {
	g := generator{
		Out: "internal/release/pins.txt", Pinned: release.Pins(), HTTP: artifact.NewClient(nil),
	}
	flag.StringVar(&g.Out, "o", g.Out, "the `file` to write")
	flag.StringVar(&g.Mirror, "mirror", "", "base `URL` to ask before the projects themselves; it "+
		"serves <base>/<host>/<path>")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "genpins [flags] [LIST | NAME@VERSION]...\n\n"+
			"LIST is a file with lines \"name version architecture digest [length]\".\n"+
			"NAME@VERSION is a release whose checksum files are read, such as kubernetes@1.36.4,\n"+
			"containerd@2.3.4, runc@1.4.3 or cni-plugins@1.9.1.\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := g.run(context.Background(), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "genpins:", err)
		os.Exit(1)
	}
}

type generator struct {
	Out, Mirror string
	Pinned      []release.Pin // the pins so far
	HTTP        *http.Client
}

func (g generator) run(ctx context.Context, from []string) error {
	all, had := slices.Clone(g.Pinned), len(g.Pinned)
	for _, source := range from {
		found, err := g.read(ctx, source)
		if err != nil {
			return err
		}
		if all, err = merge(all, found); err != nil {
			return fmt.Errorf("cannot pin what %s says: %w", source, err)
		}
	}
	if err := complete(all); err != nil {
		return err
	}
	if err := os.WriteFile(g.Out, source(all), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d digests, %d of them new\n", g.Out, len(all), len(all)-had)
	return nil
}

func (g generator) read(ctx context.Context, from string) ([]release.Pin, error) {
	if name, version, ok := strings.Cut(from, "@"); ok {
		return g.published(ctx, name, version)
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return nil, fmt.Errorf("cannot read the list: %w", err)
	}
	pins, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("cannot use the list %s: %w", from, err)
	}
	return pins, nil
}

// published reads the checksum files of a release, as the agent does for a release that is not
// pinned. "kubernetes" stands for its three programs.
func (g generator) published(ctx context.Context, name, version string) ([]release.Pin, error) {
	names := []artifact.Name{artifact.Name(name)}
	if name == "kubernetes" {
		names = []artifact.Name{artifact.Kubelet, artifact.Kubectl, artifact.Kubeadm}
	}
	var wanted []artifact.Artifact
	for _, n := range names {
		if !slices.Contains(release.Names(), string(n)) {
			return nil, fmt.Errorf("cannot pin %s: known are kubernetes, %s", name,
				strings.Join(release.Names(), ", "))
		}
		for _, arch := range []string{"amd64", "arm64"} {
			wanted = append(wanted, artifact.Artifact{Name: n, Version: version, Arch: arch})
		}
	}
	from := artifact.Source{HTTP: g.HTTP}
	if g.Mirror != "" {
		from.Mirrors, from.TrustMirrors = []string{g.Mirror}, true
	}
	resolved, err := artifact.Resolve(ctx, from, wanted, nil)
	if err != nil {
		return nil, err
	}
	var pins []release.Pin
	for _, a := range resolved {
		if a.Size == 0 {
			a.Size = g.size(ctx, a.URL)
		}
		pins = append(pins, release.Pin{
			Name: string(a.Name), Version: a.Version, Arch: a.Arch, Digest: a.ID, Size: a.Size,
		})
	}
	return pins, nil
}

// size returns the length of a file that the mirror, or else its server, reports; 0 for none.
func (g generator) size(ctx context.Context, at string) int64 {
	places := []string{at}
	if g.Mirror != "" {
		places = []string{g.Mirror + "/" + strings.TrimPrefix(at, "https://"), at}
	}
	for _, place := range places {
		req, err := http.NewRequestWithContext(ctx, http.MethodHead, place, nil)
		if err != nil {
			continue
		}
		resp, err := g.HTTP.Do(req)
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK && resp.ContentLength > 0 {
			return resp.ContentLength
		}
	}
	return 0
}

var aDigest = regexp.MustCompile(`^([0-9a-f]{64}|[0-9a-f]{128})$`)

// parse parses lines "name version architecture digest [length]"; "#" begins a comment line.
func parse(text string) ([]release.Pin, error) {
	var pins []release.Pin
	var wrong []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		p, err := pinOf(f)
		if err = cmp.Or(err, check(p)); err != nil {
			wrong = append(wrong, fmt.Errorf("line %d: %w", n, err))
		}
		pins = append(pins, p)
	}
	return pins, errors.Join(wrong...)
}

func pinOf(f []string) (p release.Pin, err error) {
	if len(f) != 4 && len(f) != 5 {
		return p, fmt.Errorf("it has %d fields, not 4 or 5", len(f))
	}
	p = release.Pin{Name: f[0], Version: release.Bare(f[1]), Arch: f[2], Digest: f[3]}
	if len(f) == 5 {
		if p.Size, err = strconv.ParseInt(f[4], 10, 64); err != nil || p.Size <= 0 {
			err = fmt.Errorf("%q is not a length in bytes", f[4])
		}
	}
	return p, err
}

func check(p release.Pin) error {
	_, version := release.Parse(p.Version)
	long := len(p.Digest) == 128
	switch {
	case !slices.Contains(release.Names(), p.Name):
		return fmt.Errorf("%q is not one of %s", p.Name, strings.Join(release.Names(), ", "))
	case !version || strings.Contains(p.Version, "-"):
		return fmt.Errorf("%q is not a release x.y.z", p.Version)
	case p.Arch != "amd64" && p.Arch != "arm64":
		return fmt.Errorf("%q is not amd64 or arm64", p.Arch)
	case !aDigest.MatchString(p.Digest) || long != (p.Name == "node-problem-detector"):
		return fmt.Errorf("%q is not a digest of %s", p.Digest, p.Name)
	}
	return nil
}

// merge adds pins. A release with two digests or lengths, or two with one digest, is an error.
func merge(all, more []release.Pin) ([]release.Pin, error) {
	of := func(p release.Pin) string { return p.Name + " " + p.Version + " " + p.Arch }
	places, owners := map[string]int{}, map[string]string{}
	for i, p := range all {
		places[of(p)], owners[p.Digest] = i, of(p)
	}
	var wrong []error
	for _, p := range more {
		i, known := places[of(p)]
		owner, taken := owners[p.Digest]
		switch {
		case !known && taken:
			wrong = append(wrong, fmt.Errorf("%s has the digest of %s", of(p), owner))
		case !known:
			places[of(p)], owners[p.Digest] = len(all), of(p)
			all = append(all, p)
		case all[i].Digest != p.Digest:
			wrong = append(wrong, fmt.Errorf("%s is pinned as %s, not %s", of(p), all[i].Digest, p.Digest))
		case all[i].Size == 0:
			all[i].Size = p.Size
		case p.Size != 0 && all[i].Size != p.Size:
			wrong = append(wrong, fmt.Errorf("%s is pinned with %d bytes, not %d", of(p), all[i].Size,
				p.Size))
		}
	}
	return all, errors.Join(wrong...)
}

// complete returns an error if a release lacks an architecture, or one of Kubernetes' three
// programs: it would be a default on some machines only.
func complete(all []release.Pin) error {
	have := map[release.Pin]bool{}
	for _, p := range all {
		have[release.Pin{Name: p.Name, Version: p.Version, Arch: p.Arch}] = true
	}
	var wrong []error
	programs := []string{"kubelet", "kubectl", "kubeadm"}
	for _, p := range all {
		names := []string{p.Name}
		if slices.Contains(programs, p.Name) {
			names = programs
		}
		for _, name := range names {
			for _, arch := range []string{"amd64", "arm64"} {
				if !have[release.Pin{Name: name, Version: p.Version, Arch: arch}] {
					wrong = append(wrong, fmt.Errorf("%s %s is pinned, but not %s for %s", p.Name,
						p.Version, name, arch))
				}
			}
		}
	}
	return errors.Join(wrong...)
}

func source(all []release.Pin) []byte {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b release.Pin) int {
		v, _ := release.Parse(a.Version)
		w, _ := release.Parse(b.Version)
		names := release.Names()
		return cmp.Or(slices.Index(names, a.Name)-slices.Index(names, b.Name), w.Compare(v),
			strings.Compare(a.Arch, b.Arch))
	})
	var b bytes.Buffer
	for _, p := range all {
		fmt.Fprint(&b, p.Name, " ", p.Version, " ", p.Arch, " ", p.Digest)
		if p.Size > 0 {
			fmt.Fprint(&b, " ", p.Size)
		}
		fmt.Fprintln(&b)
	}
	return b.Bytes()
}
