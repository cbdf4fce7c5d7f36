package stories

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// personal sets up onboarding by a person with a login of the Azure CLI, which is valid while valid
// is true; it returns the programs that were run as that person.
func (w *world) personal(t *testing.T, valid *bool) *[]string {
	t.Helper()
	onboards := w.config
	principal := onboards.Azure
	principal.Arc = nil
	programs, ran := w.programs, new([]string)
	w.programs = func(ctx context.Context, argv []string) ([]byte, error) {
		if argv[0] != "as" {
			return programs(ctx, argv)
		}
		*ran = append(*ran, strings.Join(argv, " "))
		if !*valid {
			return nil, errors.New("Please run 'az login' to setup account.")
		}
		token, err := identity.Fresh(ctx, func() (identity.Credential, error) {
			return identity.Manager(principal, nil)
		}, principal.ResourceManagerEndpoint+"/.default", identity.Need{})
		if err != nil {
			return nil, err
		}
		return json.Marshal(map[string]any{
			"accessToken": token.Value, "expires_on": token.Expires.Unix(),
		})
	}
	w.config = w.modeConfig(modes("")[6].azure, func(c map[string]any) {
		delete(c["azure"].(map[string]any), "servicePrincipal")
	})
	return ran
}

// bootstrapAs runs bootstrap at the terminal of a user who has called sudo.
func (w *world) bootstrapAs(u *host.User) error {
	return w.run(func(ctx context.Context, a *change.Agent) error {
		a.Person.Invoker = u
		_, err := change.Bootstrap(ctx, a, change.Input{Config: w.config, Origin: "file"})
		return err
	})
}

// Under sudo the login of the invoking user onboards the machine; az runs as that user.
func TestLoginOfTheInvoker(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // root has no Azure CLI
	w, sim, _ := arcWorld(t, "token")
	valid := true
	ran := w.personal(t, &valid)
	if err := w.bootstrapAs(&host.User{Name: "ada"}); err != nil {
		t.Fatal(err)
	}
	asked(t, *ran, "ada", w, sim)
}

// A login enrols a machine again that was deleted in Azure, although its agent still names it and
// it does not assign roles itself.
func TestLoginEnrolsAgain(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	w, sim, _ := arcWorld(t, "certificate")
	valid := true
	w.personal(t, &valid)
	w.config.Azure.KubeletCredential = config.CredentialCertificate
	arc, assigns := *w.config.Azure.Arc, false
	arc.AutoRoleAssignment, w.config.Azure.Arc = &assigns, &arc
	for _, how := range []string{"first", "after a deletion in Azure"} {
		sim.RemoveMachines()
		if err := w.bootstrapAs(&host.User{Name: "ada"}); err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		w.repaired(sim, how)
	}
}

// asked checks that Azure was called with a user's login, and that the machine is enrolled.
func asked(t *testing.T, ran []string, name string, w *world, sim *azuresim.Sim) {
	t.Helper()
	want := "as " + name + " az account get-access-token --output json --resource "
	for _, line := range ran {
		if !strings.HasPrefix(line, want) || !strings.HasSuffix(line, w.config.Azure.TenantID) {
			t.Errorf("ran %s", line)
		}
	}
	if len(ran) == 0 || len(sim.Machines()) != 1 {
		t.Errorf("ran %q; machines %v", ran, sim.Machines())
	}
}

// The service, which has no terminal, uses the login of the user in the configuration.
func TestLoginOfTheConfiguredUser(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	w, sim, _ := arcWorld(t, "token")
	valid := false
	ran := w.personal(t, &valid)
	w.config.Azure.CLIUser = "no-such-user"
	if err := w.bootstrapAs(nil); err == nil || !strings.Contains(err.Error(), "azure.cliUser") {
		t.Errorf("of a user that is not there: %v", err)
	}
	w.config.Azure.CLIUser = "nobody" // as on every Debian
	const want = "for nobody, and no terminal to log in at; log in with `sudo -iu nobody az login"
	if err := w.bootstrapAs(nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without a login of that user: %v", err)
	}
	valid = true
	if err := w.bootstrapAs(nil); err != nil {
		t.Fatal(err)
	}
	asked(t, *ran, "nobody", w, sim)
}

// Without a valid login nothing is changed, and the error has the reason and the command to log in:
// for the service, which has no user's terminal, as root.
func TestNoLogin(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for name, tt := range map[string]struct {
		user      *host.User
		want, why string
	}{
		"the service": {nil, "log in with `sudo az login --use-device-code --tenant ", "not found"},
		"a user's sudo": {&host.User{Name: "ada"}, "log in with `az login --use-device-code --tenant ",
			"Please run 'az login'"},
	} {
		w, _, _ := arcWorld(t, "token")
		valid := false
		w.personal(t, &valid)
		before := w.tree()
		if err := w.bootstrapAs(tt.user); err == nil || !strings.Contains(err.Error(), tt.want) ||
			!strings.Contains(err.Error(), tt.why) {
			t.Errorf("%s: the error is %v", name, err)
		}
		w.same(before)
	}
}
