#!/bin/sh
# Installs aks-flex-node: by apt where there is apt, from a signed repository; else the program with
# its unit and licences, which are verified by the digests below. It installs nothing else, starts
# nothing, and removes nothing. `install.sh --help` says more.
#
# A cut download does nothing: all is done by main, which the last line calls.
set -eu

# Where the latest release is. The copy of this script in the sources runs the one that is there.
RELEASES='https://github.com/Azure/AKSFlexNode/releases/latest/download'

# What follows is filled in for a release.
VERSION=''
REPOSITORY=''
KEY=''
PROGRAM_AMD64=''
PROGRAM_ARM64=''
NOTICE_AMD64=''
NOTICE_ARM64=''
UNIT=''
UNINSTALL=''
# End of what is filled in.

config_dir=/etc/aks-flex-node
lists=/var/lib/apt/lists/lock
keyring=/usr/share/keyrings/aks-flex-node-archive-keyring.gpg
source=/etc/apt/sources.list.d/aks-flex-node.sources
program=/usr/local/bin/aks-flex-node
unit=/etc/systemd/system/aks-flex-node-agent.service
own=/usr/local/lib/aks-flex-node
doc=/usr/local/share/doc/aks-flex-node
state=/var/lib/aks-flex-node

usage() {
	cat <<-END
		usage: install.sh [--dry-run] [--no-apt] [--version VERSION] [--repository URL] [--key FILE]

		Installs the release that it belongs to; a copy from the sources, the latest one.

		  --dry-run         say what would be done, and do nothing
		  --no-apt          install the program below /usr/local, also where there is apt
		  --version VERSION another version than the script's, also an older one, or "latest",
		                    with apt
		  --repository URL  another repository, such as a mirror
		  --key FILE        the key that must have signed it, not armored, instead of the release's
	END
}

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

say() { echo "install.sh: $*"; }

# change runs a command that changes the machine; with --dry-run it only shows it.
change() {
	echo "+ $*"
	[ -n "$dry_run" ] || "$@"
}

# ours are the files that this script writes.
ours() {
	echo "$keyring" "$source" "$program" "$unit" "$own/uninstall.sh" "$own/made" "$doc/NOTICE" \
		"$config_dir/config.json.sample"
}

# begin notes what is not there yet. An installation that fails leaves none of it: not half a file,
# nor a repository of which apt complains from then on.
begin() {
	absent='' absent_dirs='' work='' was_source='' was_key='' new_key='' finished=$dry_run
	for file in $(ours); do
		[ -e "$file" ] || absent="$absent $file"
	done
	for dir in "$own" "$doc" "${doc%/*}" "$config_dir"; do
		[ -d "$dir" ] || absent_dirs="$absent_dirs $dir"
	done
	trap end EXIT
	trap 'exit 1' HUP INT TERM
}

end() {
	[ -z "$work" ] || rm -rf "$work"
	[ -z "$finished" ] || return 0
	[ -z "$was_source" ] || printf %s "$was_source" | base64 -d | place 644 "$source" || true
	[ -z "$was_key" ] || printf %s "$was_key" | base64 -d | place 644 "$keyring" || true
	[ -z "$new_key" ] || rm -f "$new_key"
	for file in $(ours); do
		rm -f "$file.new"
	done
	# With a package of ours on the machine, its repository stays.
	if command -v dpkg-query >/dev/null &&
		dpkg-query -W -f '${db:Status-Status}\n' aks-flex-node aks-flex-node-archive-keyring \
			2>/dev/null | grep -qvxE 'not-installed|config-files'; then
		return 0
	fi
	# shellcheck disable=SC2086 # many words
	rm -f $absent
	for dir in $absent_dirs; do
		rmdir "$dir" 2>/dev/null || true
	done
}

# place writes standard input to a file, and to the disk: place MODE FILE.
place() {
	echo "+ write $2"
	if [ -n "$dry_run" ]; then
		cat >/dev/null
		return
	fi
	mkdir -p "${2%/*}" && cat >"$2.new" && chmod "$1" "$2.new" && sync "$2.new" && mv "$2.new" "$2"
}

check() {
	[ -n "$dry_run" ] || [ "$(id -u)" = 0 ] || fail 'must be run by root: use sudo'
	case "$(uname -m)" in
	x86_64) arch=amd64 digest=$PROGRAM_AMD64 terms=$NOTICE_AMD64 ;;
	aarch64) arch=arm64 digest=$PROGRAM_ARM64 terms=$NOTICE_ARM64 ;;
	*) fail "there is no aks-flex-node for $(uname -m): it is made for x86_64 and aarch64" ;;
	esac
	[ -d /run/systemd/system ] || fail 'systemd does not run here, and kubelet needs it'
	# shellcheck source=/dev/null
	system=$(. /etc/os-release && echo "${ID:-} ${VERSION_ID:-}")
	case "$system" in
	'ubuntu 22.04' | 'ubuntu 24.04' | 'debian 12') ;;
	*) say "warning: made for Ubuntu 22.04 and 24.04 and tested on Debian 12, not on $system" ;;
	esac
	memory=$(awk '/^MemTotal:/ {print int($2 / 1024)}' /proc/meminfo)
	[ "$memory" -ge 1900 ] || say "warning: a node needs 2 GB of memory; here are $memory MB"
	room=$(df -Pk /var | awk 'NR == 2 {print int($4 / 1024 / 1024)}')
	[ "$room" -ge 25 ] || say "warning: a node should have 25 GB free below /var; here are $room GB"
}

# busy reports whether another apt reads indexes: a new machine often upgrades itself just now.
busy() {
	inode=$(stat -c %i "$lists" 2>/dev/null) && grep -q ":$inode " /proc/locks
}

# read_index has apt read the indexes of repositories. It does not wait for another one by itself.
read_index() {
	tries=0
	until change apt-get update -q -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 "$@"; do
		[ "$tries" -lt 60 ] && busy || return 1
		tries=$((tries + 1))
		sleep 5
	done
}

by_apt() {
	[ -n "$KEY$key_file" ] || fail 'this copy belongs to no release, and has no key: add --key FILE'
	if [ -n "$key_file" ]; then
		[ -r "$key_file" ] || fail "cannot read the key $key_file"
		! grep -q 'BEGIN PGP' "$key_file" || fail "the key must not be armored:" \
			"gpg --dearmor <$key_file >FILE"
	fi
	for file in "$program" "$unit"; do
		[ ! -e "$file" ] || fail "$file would be used instead of the package; remove it first:" \
			'AKS_FLEX_NODE_REMOVE=keep /usr/local/lib/aks-flex-node/uninstall.sh'
	done
	# What works is put back if the index of this one cannot be read.
	[ ! -e "$source" ] || was_source=$(base64 -w0 <"$source")
	if [ -e "$keyring" ]; then
		was_key=$(base64 -w0 <"$keyring")
	else
		new_key=$keyring
	fi
	if [ -n "$key_file" ]; then
		place 644 "$keyring" <"$key_file"
	elif ! dpkg-query -W -f '${db:Status-Status}' aks-flex-node-archive-keyring 2>/dev/null |
		grep -qx installed; then # that package may have a newer key
		printf %s "$KEY" | base64 -d | place 644 "$keyring"
	fi
	place 644 "$source" <<-END
		Types: deb
		URIs: $REPOSITORY
		Suites: stable
		Components: main
		Signed-By: $keyring
	END
	read_index -o "Dir::Etc::sourcelist=$source" -o Dir::Etc::sourceparts=- \
		-o APT::Get::List-Cleanup=0 -o APT::Update::Error-Mode=any
	was_source='' was_key='' new_key=''
	# What another repository of this machine lacks may not be needed; if it is, the next step says so.
	read_index || say 'warning: the indexes of other repositories cannot be read'
	older=''
	[ -z "$version" ] || older=--allow-downgrades
	wanted=${version:-$VERSION}
	[ "$wanted" != latest ] || wanted='' older=''
	# shellcheck disable=SC2086 # one word or none
	change env DEBIAN_FRONTEND=noninteractive apt-get install -q -y -o DPkg::Lock::Timeout=300 \
		-o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 \
		$older "aks-flex-node${wanted:+=$wanted}" aks-flex-node-archive-keyring
}

# download writes what is at a URL into a file: download URL FILE. A server that says nothing for
# 30 seconds is given up.
download() {
	if command -v curl >/dev/null; then
		curl -fsSL --retry 3 --connect-timeout 30 --speed-limit 1 --speed-time 30 \
			-o "$2" "$1" || fail "cannot download $1"
	else
		wget -q --tries 3 --timeout 30 -O "$2" "$1" || fail "cannot download $1"
	fi
}

# latest runs the script of the latest release, which must be whole, with the same arguments.
latest() {
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM
	download "$RELEASES/install.sh" "$work/install.sh"
	if ! grep -q "^VERSION='..*'" "$work/install.sh" ||
		! tail -n 1 "$work/install.sh" | grep -qx 'main "$@"'; then
		fail "$RELEASES/install.sh is not the script of a release"
	fi
	sh "$work/install.sh" "$@"
}

# fetch downloads a file of the release and verifies it: fetch NAME SHA256 FILE.
fetch() {
	download "$REPOSITORY/$1" "$3"
	echo "$2  $3" | sha256sum --check --status ||
		fail "$REPOSITORY/$1 is not what was released: its SHA-256 is not $2"
}

by_digest() {
	[ -z "$version" ] || fail '--version needs apt: take the install.sh of that version'
	[ -n "$digest" ] || fail 'this copy belongs to no release: use that of a release'
	if command -v dpkg-query >/dev/null &&
		dpkg-query -W -f '${db:Status-Status}' aks-flex-node 2>/dev/null | grep -qx installed; then
		fail 'the package aks-flex-node is installed: use apt'
	fi
	if [ -n "$dry_run" ]; then
		work=$(mktemp -d)
	else # where uninstall.sh removes it, should this be killed
		work=$own/new
		rm -rf "$work"
		mkdir -p "$work"
	fi
	base=programs/aks-flex-node_$VERSION # the next release keeps these files
	fetch "$base.uninstall.sh" "$UNINSTALL" "$work/uninstall"
	fetch "$base.service" "$UNIT" "$work/unit"
	fetch "${base}_$arch.NOTICE" "$terms" "$work/notice"
	if ! echo "$digest  $program" | sha256sum --check --status 2>/dev/null; then
		fetch "${base}_$arch" "$digest" "$work/program"
		place 755 "$program" <"$work/program"
	fi
	place 755 "$own/uninstall.sh" <"$work/uninstall"
	# What uninstall.sh takes back is written down before it is made.
	[ -d "${doc%/*}" ] || echo "${doc%/*}" | place 644 "$own/made"
	place 644 "$doc/NOTICE" <"$work/notice"
	place 644 "$unit" <"$work/unit"
	change systemctl daemon-reload
	change systemctl try-restart aks-flex-node-agent.service
}

sample() {
	[ -d "$config_dir" ] || change mkdir -m 755 "$config_dir"
	# The service may use the login of the Azure CLI of who installs; at a terminal it asks by itself.
	user=''
	case "${SUDO_USER:-root}" in
	root | *[!A-Za-z0-9._-]*) ;;
	*) user="\"cliUser\": \"$SUDO_USER\"," ;;
	esac
	clusters=resourceGroups/your-rg/providers/Microsoft.ContainerService/managedClusters
	place 600 "$config_dir/config.json.sample" <<-END
		{
		  "azure": {
		    "subscriptionId": "your-subscription-id",
		    "tenantId": "your-tenant-id",
		    "cloud": "AzurePublicCloud",${user:+
		    $user}
		    "arc": {
		      "machineName": "your-unique-node-name",
		      "tags": { "environment": "edge", "node-type": "worker" },
		      "resourceGroup": "your-resource-group",
		      "location": "westus",
		      "autoRoleAssignment": true
		    },
		    "targetCluster": {
		      "resourceId": "/subscriptions/your-subscription-id/$clusters/your-cluster",
		      "location": "westus"
		    }
		  },
		  "kubernetes": { "version": "your-kubernetes-version" },
		  "agent": { "logLevel": "info", "logDir": "/var/log/aks-flex-node" }
		}
	END
}

# next says what to do, by what this machine is already.
next() {
	if [ -e "$state/ledger.json" ]; then
		cat <<-END

			aks-flex-node is installed. This machine is a node, and remains one:

			  systemctl enable --now aks-flex-node-agent          # if it does not run
			  aks-flex-node status
		END
		return
	fi
	if [ -e "$config_dir/config.json" ]; then
		cat <<-END

			aks-flex-node is installed; nothing was started. $config_dir/config.json is there. Next:

			  aks-flex-node config validate
			  aks-flex-node plan                                  # what would be done
			  systemctl enable --now aks-flex-node-agent
		END
		return
	fi
	cat <<-END

		aks-flex-node is installed; nothing was started. Next:

		  cp $config_dir/config.json.sample $config_dir/config.json   # and fill it in
		  aks-flex-node config validate
		  aks-flex-node plan                                  # what would be done
		  systemctl enable --now aks-flex-node-agent
		  journalctl -fu aks-flex-node-agent                  # also in /var/log/aks-flex-node

		Or, with a configuration URL: aks-flex-node agent --config-url-file FILE
	END
	command -v az >/dev/null || echo 'The Azure CLI is not here; only a join without a service' \
		'principal or another credential needs it.'
}

options() {
	dry_run='' use_apt=yes version='' key_file=''
	while [ $# -gt 0 ]; do
		case "$1" in
		--dry-run) dry_run=yes ;;
		--no-apt) use_apt='' ;;
		--version) version=${2:?--version needs a version} && shift ;;
		--repository) REPOSITORY=${2:?--repository needs a URL} && shift ;;
		--key) key_file=${2:?--key needs a file} && shift ;;
		-h | --help) usage && exit ;;
		*) usage >&2 && exit 2 ;;
		esac
		shift
	done
	# The keyring package, which is installed too, has the release's key in the other place.
	[ -z "$key_file" ] || keyring=/etc/apt/keyrings/aks-flex-node.gpg
}

main() {
	umask 022 # what is installed is for all to read
	options "$@"
	if [ -z "$VERSION$REPOSITORY" ]; then
		latest "$@"
		return
	fi
	begin
	check
	if [ -n "$use_apt" ] && command -v apt-get >/dev/null; then
		by_apt
	else
		by_digest
	fi
	sample
	finished=yes
	if [ -n "$dry_run" ]; then
		say 'nothing was changed'
	else
		next
	fi
}

main "$@"
