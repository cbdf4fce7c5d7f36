package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"runtime"

	"github.com/Azure/AKSFlexNode/internal/regular"
)

const maxSize = 1 << 20 // bounds a configuration file, in bytes; a whole one has a few kilobytes

// Loaded holds the result of one read of a configuration file.
type Loaded struct {
	Config Config
	// Document is the canonical form of the very bytes that Config was parsed from (Canonical).
	Document []byte
	Resource *Resource // the flexNodeConfig that it is from; nil when the file does not say
	Warnings []Warning
}

// Load reads the configuration of this machine from a file. It refuses a file that others than root
// could change (Trusted), and one that holds a secret and others can read. before is the applied
// configuration, or nil (Host). AsProblems lists all that is in the error; warnings are there with
// it, too.
func Load(path string, before *Config) (Loaded, error) {
	// Asked before the file is opened: if only root can change it now, only root can until then.
	untrusted := Trusted(path)
	data, info, err := read(path)
	if err != nil {
		return Loaded{}, err
	}
	loaded, err := Read(data, before)
	if problems, ok := errors.AsType[Problems](err); ok {
		err = fmt.Errorf("cannot use the configuration %s:\n%w", path, problems)
	}
	if errs := errors.Join(untrusted, private(path, info, loaded.Config), err); errs != nil {
		return Loaded{Warnings: loaded.Warnings}, errs
	}
	return loaded, nil
}

// Read reads the configuration of this machine out of a document, as Load does. With an error of
// type Problems there is as much of the Config as could be read.
func Read(data []byte, before *Config) (Loaded, error) {
	name, err := os.Hostname()
	if err != nil {
		return Loaded{}, fmt.Errorf("cannot read the host name: %w", err)
	}
	c, warnings, err := Parse(data, Host{HostName: name, Arch: runtime.GOARCH, Before: before})
	loaded := Loaded{Config: c, Warnings: warnings}
	if err != nil {
		return loaded, err
	}
	if loaded.Document, err = Canonical(data); err == nil {
		loaded.Resource, err = ResourceOf(data)
	}
	return loaded, err
}

// read returns a regular file and what it was like when it was opened.
func read(path string) ([]byte, fs.FileInfo, error) {
	f, info, err := regular.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; write it, or name another file with --config", err)
	}
	var data []byte
	if err == nil {
		defer f.Close()
		data, err = io.ReadAll(io.LimitReader(f, maxSize+1))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	if len(data) > maxSize {
		return nil, nil, fmt.Errorf("cannot read the configuration %s: it is larger than 1 MiB", path)
	}
	return data, info, nil
}

// private refuses a file that others than its owner can read, for one that holds a secret.
func private(path string, info fs.FileInfo, c Config) error {
	if len(c.Secrets()) == 0 || info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return fmt.Errorf("cannot use the configuration %s: it holds a secret and others can read it "+
		"(mode %s); run `chmod 600 %s`", path, octal(info.Mode()), ShellWord(path))
}

// Host holds the input of a configuration from the machine it is for.
type Host struct {
	HostName string // the default of the Node's and the Arc machine's name
	Arch     string // amd64 or arm64
	// Before is the configuration that is applied on this machine, or nil. What a document leaves
	// open and was resolved then is taken from it: the five versions, azure.kubeletCredential,
	// azure.arc.roles, azure.arc.machineName and agent.nodeName.
	Before *Config
}

// Parse reads a configuration: JSON of the form of Config or of the bundle {"config": {...}}, with
// aliases, and completes it. An open kubernetes.version is "" then, as are the versions whose
// defaults depend on it: the caller chooses (WithKubernetes). The error is of type Problems, and
// has all of them; with one there is as much of the Config as could be read.
func Parse(data []byte, host Host) (Config, []Warning, error) {
	r := &report{}
	c := r.parse(readDocument(data, r), host)
	return c, r.warnings, r.err(c)
}

// ParseDecoded is Parse for a document decoded into maps, lists, strings, json.Number, booleans and
// nil. It replaces the aliases in the document.
func ParseDecoded(document map[string]any, host Host) (Config, Problems) {
	r := &report{}
	c := r.parse(document, host)
	return c, r.sorted(c)
}

func (r *report) parse(document map[string]any, host Host) Config {
	c := defaults()
	c.keepVersions(host.Before)
	r.decode("", settingsOf(document, r), reflect.ValueOf(&c).Elem())
	c.complete(host)
	c.check(host, r)
	return c
}

func (c Config) check(host Host, r *report) {
	applyRules(&c, r)
	for _, check := range []func(Config, *report){
		checkAuth, checkCA, checkNode, checkWindow, checkNetwork, checkDirs, checkArtifacts,
	} {
		check(c, r)
	}
	if c.Azure.TargetAgentPoolName != "" {
		const idle = "has no effect yet: this release of the agent does not support it"
		r.warn("azure.targetAgentPoolName", idle)
	}
	checkVersions(c, host, r)
	r.need("azure.targetCluster.resourceId", c.Azure.TargetCluster.ResourceID != "",
		"must be set to the ARM id of the cluster")
	r.need("agent.nodeName", c.Agent.NodeName != "", "must be set: this machine has no host name")
}

func settingsOf(doc map[string]any, r *report) map[string]any {
	doc, origin := unwrap(doc, r)
	readResource(origin, r)
	rename(doc, r)
	return doc
}
