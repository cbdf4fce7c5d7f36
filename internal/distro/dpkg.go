package distro

// Manager is a package manager. The name or file of a package is appended to its commands.
type Manager struct {
	Name, Front string // the program itself, and the one that people and timers run
	Upgrader    string // installs updates automatically
	// Show prints the state of a package, a word of States or another, and its version; it exits with
	// 1 for an unknown package.
	Show, Install, Remove, Purge []string
	Environment                  []string // prevents questions, and restarts of other services
	// Locks exclude other package managers. The caller holds the first, the manager takes the last.
	Locks    [2]string
	Database string // the records of all packages
	Suffix   string // ends the name of a package's file

	Fetch, Finish, Hold, Unhold, PurgeAll Advice
}

// dpkg returns Debian's package manager (dpkg(1), dpkg-query(1), dpkg's frontend locking protocol).
func dpkg() Manager {
	return Manager{
		Name: "dpkg", Front: "apt", Upgrader: "unattended-upgrades",
		Show:    []string{"dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}"},
		Install: []string{"dpkg", "--install", "--force-confdef", "--force-confold"},
		Remove:  []string{"dpkg", "--remove", "--force-remove-reinstreq"},
		Purge:   []string{"dpkg", "--purge", "--force-remove-reinstreq"},
		Environment: []string{"LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1",
			"DPKG_FRONTEND_LOCKED=true"},
		Locks:    [2]string{"/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock"},
		Database: "/var/lib/dpkg/status",
		Suffix:   ".deb",
		Fetch:    "apt-get install", Finish: "dpkg --configure -a",
		Hold: "apt-mark hold", Unhold: "apt-mark unhold", PurgeAll: "apt-get purge --autoremove",
	}
}
