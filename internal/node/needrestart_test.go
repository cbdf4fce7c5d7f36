package node

import (
	"os/exec"
	"testing"
)

// needrestart evaluates the file, and asks each expression whether a service may be restarted.
func TestNeedrestart(t *testing.T) {
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("perl is not on this machine")
	}
	const ask = `use strict; our %nrconf = (override_rc => {qr(^dbus) => 0, qr(^x) => 1});
eval $ARGV[0]; die $@ if $@;
foreach my $name (split / /, $ARGV[1]) {
  my $found = "";
  foreach my $re (keys %{$nrconf{override_rc}}) {
    $found = $nrconf{override_rc}->{$re} if $name =~ /$re/;
  }
  print "$found,";
}`
	const names = "containerd.service kubelet.service dbus.service x.service ssh.service " +
		"kubelet-x.service"
	out, err := exec.Command("perl", "-e", ask, needrestart, names).CombinedOutput()
	if got, want := string(out), "0,0,0,1,,,"; err != nil || got != want {
		t.Errorf("%s says %q, want %q: %v", names, got, want, err)
	}
}
