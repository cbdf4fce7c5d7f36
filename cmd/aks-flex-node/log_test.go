package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// logged makes the log of a configuration whose directory is not there yet.
func logged(t *testing.T, o *options) (c *config.Config, file string) {
	t.Helper()
	c = &config.Config{}
	c.Agent.LogDir = filepath.Join(t.TempDir(), "log", "aks-flex-node")
	o.journal = o.newJournal(c)
	t.Cleanup(func() { o.journal.file.Close() })
	return c, filepath.Join(c.Agent.LogDir, "aks-flex-node.log")
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The log is there from the first line on, for root alone, and a command that only looks makes
// none.
func TestLogBegins(t *testing.T) {
	o := &options{}
	c, file := logged(t, o)
	if _, err := os.Stat(c.Agent.LogDir); err == nil {
		t.Error("the directory is there before anything is logged")
	}
	o.journal.logger(c).Info("begun")
	if !strings.Contains(read(t, file), "begun") {
		t.Error("the first line is not in the log")
	}
	for path, want := range map[string]os.FileMode{file: 0o600, c.Agent.LogDir: 0o750} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// A secret that arrives after the log was begun is in none of its lines, nor is one that the log
// would quote, nor one that has another one in it.
func TestLogScrubs(t *testing.T) {
	o, journald := &options{}, &bytes.Buffer{}
	c, file := logged(t, o)
	o.journal.err = journald
	log := o.journal.logger(c)
	const late, quoted = "abcdef.0123456789abcdef", `s"cr\et`
	next := config.Config{Azure: config.Azure{
		BootstrapToken:   &config.BootstrapToken{Token: late},
		ServicePrincipal: &config.ServicePrincipal{ClientSecret: quoted},
	}}
	o.secrets.Know(next.Secrets()...)
	log.Info("received", "text", "the token is "+late, "error", errors.New(quoted+" is wrong"))
	for name, text := range map[string]string{
		"file": read(t, file), "systemd's journal": journald.String(),
	} {
		for _, secret := range []string{late, "0123456789abcdef", quoted, `s\"cr\\et`} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %s", name, text)
			}
		}
		if !strings.Contains(text, "the token is [redacted]") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// A text of another program's is searched for encoded secrets and for what looks like one. Its
// sentences stay as they are.
func TestLogScrubsEncoded(t *testing.T) {
	o := &options{}
	c, file := logged(t, o)
	o.secrets.Know("pw1", "a-client-secret")
	for _, secret := range []string{
		"pw1", base64.StdEncoding.EncodeToString([]byte("xx a-client-secret and more")),
		"eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJ4In0.c2lnbmF0dXJl", "https://user:word@proxy.example",
	} {
		o.journal.logger(c).Info("it says", "text", secret)
		if text := read(t, file); strings.Contains(text, secret) {
			t.Errorf("the log is %s", text)
		}
	}
	const sentence = "cannot get a token: unauthorized_client"
	o.journal.logger(c).Error(sentence)
	if text := read(t, file); !strings.Contains(text, sentence) {
		t.Errorf("the log is %s", text)
	}
}

// Why a command has failed is in the file; systemd's journal has it from standard error.
func TestLogOfFailure(t *testing.T) {
	o, journald := &options{}, &bytes.Buffer{}
	_, file := logged(t, o)
	o.journal.err = journald
	o.journal.failed(errors.New("cannot use this machine"))
	if text := read(t, file); !strings.Contains(text, `level=ERROR`) ||
		!strings.Contains(text, "cannot use this machine") {
		t.Errorf("the log is %s", text)
	}
	if journald.Len() > 0 {
		t.Errorf("the journal has it twice: %s", journald)
	}
}

// A file that cannot be written keeps nothing from systemd's journal.
func TestLogWithoutDisk(t *testing.T) {
	o, journald := &options{}, &bytes.Buffer{}
	c, _ := logged(t, o)
	if err := os.WriteFile(filepath.Dir(c.Agent.LogDir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.journal.err = journald
	o.journal.logger(c).Info("begun")
	if !strings.Contains(journald.String(), "begun") {
		t.Error("nothing was said")
	}
}

// Each line is a JSON object where the configuration says so, also one with a secret in it.
func TestLogAsJSON(t *testing.T) {
	o := &options{}
	c, file := logged(t, o)
	c.Agent.LogFormat = "json"
	o.secrets.Know(`s"cr\et`)
	o.journal.logger(c).Error("cannot join", "error", errors.New(`s"cr\et is wrong`))
	var line struct{ Level, Msg, Error string }
	if err := json.Unmarshal([]byte(read(t, file)), &line); err != nil || line.Msg != "cannot join" ||
		line.Error != "[redacted] is wrong" {
		t.Errorf("%v: %s", err, read(t, file))
	}
}

// A command beside the service leaves the rotation of the log to it (E27).
func TestOneProcessRotatesTheLog(t *testing.T) {
	for _, c := range []struct {
		service, running bool
		want             int
	}{
		{true, true, logSize}, {true, false, logSize}, {false, false, logSize},
		{false, true, math.MaxInt32},
	} {
		if got := rotatesAt(c.service, c.running); got != c.want {
			t.Errorf("service %v, running %v: %d", c.service, c.running, got)
		}
	}
}
