package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// The lab's stand-in for the Arc agent's package and its repository, which is like Microsoft's but
// signed with a key of the lab.
const (
	arcPackageVersion = "1.65.0"
	arcRepository     = "packages.microsoft.com/debian/12/prod"
	// ArcKeyPath is the path of the repository's key on a machine.
	ArcKeyPath = "/etc/aks-flex-node/arc-repository.asc"
)

// packagesDir returns the directory that is served beside the artifacts, as a mirror of its host.
func (l *Lab) packagesDir() string { return l.path("packages") }

// withPackages serves the repositories, and passes all other requests to next.
func (l *Lab) withPackages(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/packages.microsoft.com/", "/" + archiveDir + "/"} {
		mux.Handle(path, http.FileServer(http.Dir(l.packagesDir())))
	}
	mux.Handle(latestRelease, http.StripPrefix(latestRelease,
		http.FileServer(http.Dir(filepath.Join(l.packagesDir(), archiveDir)))))
	mux.Handle("/", next)
	return mux
}

// ArcFile returns the path of the Arc agent's package. The first call builds the package and adds
// it to the signed repository.
func (l *Lab) ArcFile(ctx context.Context) (string, error) {
	l.arc.Lock()
	defer l.arc.Unlock()
	repository := filepath.Join(l.packagesDir(), arcRepository)
	name := "azcmagent_" + arcPackageVersion + "_" + runtime.GOARCH + ".deb"
	file := filepath.Join(repository, "pool/main/a/azcmagent", name)
	if _, err := os.Stat(filepath.Join(l.packagesDir(), "key.asc")); err == nil {
		return file, nil
	}
	work, err := os.MkdirTemp(l.Dir, "azcmagent-")
	if err != nil {
		return "", fmt.Errorf("cannot make the Arc agent's package: %w", err)
	}
	defer os.RemoveAll(work)
	err = errors.Join(os.MkdirAll(l.packagesDir(), 0o755), os.RemoveAll(repository),
		l.buildArc(ctx, filepath.Join(work, name)))
	if err == nil {
		err = l.withKey(ctx, func(home string) error {
			return l.release(ctx, "repository", "--home", home, "--packages", work,
				"--repository", repository, "--suite", "bookworm", "--architectures", runtime.GOARCH)
		})
	}
	if err == nil { // last: it marks the package as complete
		err = os.Rename(filepath.Join(repository, "key.asc"), filepath.Join(l.packagesDir(), "key.asc"))
	}
	if err != nil {
		return "", fmt.Errorf("cannot make the Arc agent's package: %w", err)
	}
	return file, nil
}

// UseArcRepository installs the repository's key on a machine and returns the package section of
// its configuration.
func (l *Lab) UseArcRepository(ctx context.Context, m Machine) (map[string]any, error) {
	if _, err := l.ArcFile(ctx); err != nil {
		return nil, err
	}
	key, err := os.ReadFile(filepath.Join(l.packagesDir(), "key.asc"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the key of the repository: %w", err)
	}
	return object{"keyFile": ArcKeyPath}, l.Write(m, ArcKeyPath, 0o644, key)
}

// arcControl returns the package's control file for dpkg.
func arcControl() string {
	return "Package: azcmagent\nVersion: " + arcPackageVersion + "\nArchitecture: " +
		runtime.GOARCH + "\nMaintainer: flexlab <flexlab@flexlab.example>\n" +
		"Description: A stand-in for the Azure Connected Machine agent\n"
}

// buildArc builds the package. Like the real one it starts its services, and its removal leaves
// what they have written.
func (l *Lab) buildArc(ctx context.Context, file string) error {
	program, err := os.ReadFile(l.azuresim())
	if err != nil {
		return fmt.Errorf("cannot read azuresim: %w; run `make build`", err)
	}
	dir, err := os.MkdirTemp(l.packagesDir(), "azcmagent-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	unit := func(text, command string) string {
		return "[Unit]\nDescription=" + text + "\n[Service]\nExecStart=" + command +
			"\nRestart=always\n[Install]\nWantedBy=multi-user.target\n"
	}
	const services = "himdsd gcad extd"
	files := map[string]string{
		"opt/azcmagent/bin/azcmagent": string(program),
		"etc/azuresim/endpoint":       AzureURL + "\n",
		"usr/lib/systemd/system/himdsd.service": unit("Azure Connected Machine metadata",
			"/opt/azcmagent/bin/himds himds --endpoint "+AzureURL),
		"usr/lib/systemd/system/gcad.service": unit("Azure Arc guest configuration",
			"/usr/bin/sleep infinity"),
		"usr/lib/systemd/system/extd.service": unit("Azure Arc extensions", "/usr/bin/sleep infinity"),
		"DEBIAN/control":                      arcControl(),
		"DEBIAN/postinst": "#!/bin/sh\nset -e\nmkdir -p /var/opt/azcmagent\nsystemctl daemon-reload\n" +
			"systemctl enable --quiet --now " + services + "\n",
		"DEBIAN/prerm":  "#!/bin/sh\nset -e\nsystemctl disable --quiet --now " + services + "\n",
		"DEBIAN/postrm": "#!/bin/sh\nset -e\nsystemctl daemon-reload\n",
	}
	for name, content := range files {
		path, mode := filepath.Join(dir, name), os.FileMode(0o644)
		if strings.Contains(name, "/bin/") || strings.HasPrefix(name, "DEBIAN/p") {
			mode = 0o755
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(content), mode)); err != nil {
			return err
		}
	}
	for link, target := range map[string]string{
		"usr/bin/azcmagent": "/opt/azcmagent/bin/azcmagent", "opt/azcmagent/bin/himds": "azcmagent",
	} {
		path := filepath.Join(dir, link)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.Symlink(target, path)); err != nil {
			return err
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	_, err = run(ctx, "dpkg-deb", "--root-owner-group", "-Znone", "--build", dir, file)
	return err
}

// AddArc installs the stand-in for the Arc agent on a machine, as its owner would.
func (l *Lab) AddArc(ctx context.Context, m Machine) error {
	file, err := l.ArcFile(ctx)
	if err != nil {
		return err
	}
	deb, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cannot read the Arc agent's package: %w", err)
	}
	const path = "/root/azcmagent.deb"
	if err := l.Write(m, path, 0o600, deb); err != nil {
		return err
	}
	_, err = l.Output(ctx, m, "dpkg", "--install", path)
	return errors.Join(err, os.Remove(filepath.Join(m.Root, path)))
}
