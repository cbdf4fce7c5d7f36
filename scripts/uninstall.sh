#!/bin/sh
# Removes what install.sh has installed, by apt or below /usr/local, with configuration, logs and
# records. It does not make a node leave its cluster, nor disconnect it from Arc: that is done by
# `aks-flex-node unbootstrap`, which comes first. The Arc agent and the Azure CLI are not touched.
#
# A cut download does nothing: all is done by main, which the last line calls.
set -eu

config_dir=/etc/aks-flex-node
keyring=/usr/share/keyrings/aks-flex-node-archive-keyring.gpg
source=/etc/apt/sources.list.d/aks-flex-node.sources
program=/usr/local/bin/aks-flex-node
service=aks-flex-node-agent.service
unit=/etc/systemd/system/$service
own=/usr/local/lib/aks-flex-node
doc=/usr/local/share/doc/aks-flex-node
state=/var/lib/aks-flex-node

usage() {
	cat <<-END
		usage: uninstall.sh [--force] [--dry-run]

		  --force    do not ask
		  --dry-run  say what would be done, and do nothing

		With AKS_FLEX_NODE_REMOVE=keep in the environment only the program goes: the configuration
		stays, and so does the node, if this machine is one.
	END
}

fail() {
	echo "uninstall.sh: $*" >&2
	exit 1
}

# change runs a command that changes the machine; with --dry-run it only shows it.
change() {
	echo "+ $*"
	[ -n "$dry_run" ] || "$@"
}

# remove removes files that are there, and what an install.sh has left that was killed.
remove() {
	for name in "$@"; do
		for file in "$name" "$name.new"; do
			if [ -e "$file" ] || [ -L "$file" ]; then
				change rm -rf "$file" || echo "uninstall.sh: $file remains: a disk may be mounted there"
			fi
		done
	done
}

# refuse_node fails on a node, whose records unbootstrap needs. One without a ledger has lost it.
refuse_node() {
	for record in ledger.json node-ledger.json transition.json; do
		[ ! -e "$state/$record" ] ||
			fail "this machine is a node of a cluster: run \`aks-flex-node unbootstrap\` first"
	done
	[ ! -e "$state/join-state.json" ] || fail "this machine is a node of a cluster and has lost its" \
		"records: run \`aks-flex-node unbootstrap --force\` first"
}

ask() {
	if [ -n "$force$dry_run" ]; then
		return
	fi
	if ! (: </dev/tty) 2>/dev/null; then
		fail 'cannot ask without a terminal: use --force'
	fi
	with=' with its configuration, logs and records'
	[ -z "$keep" ] || with=''
	printf 'Remove aks-flex-node%s? [y/N] ' "$with" >/dev/tty
	read -r answer </dev/tty || answer=''
	case "$answer" in
	y | Y | yes) ;;
	*) fail 'nothing was removed' ;;
	esac
}

# packaged reports whether dpkg has anything of a package, be it only half of it.
packaged() {
	command -v dpkg-query >/dev/null &&
		dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qvx not-installed
}

remove_packages() {
	candidates='aks-flex-node aks-flex-node-archive-keyring' how=purge
	if [ -n "$keep" ]; then
		candidates=aks-flex-node how=remove
	fi
	list=''
	for package in $candidates; do
		! packaged "$package" || list="$list $package"
	done
	# shellcheck disable=SC2086 # two words
	[ -z "$list" ] || change apt-get "$how" -q -y -o DPkg::Lock::Timeout=300 $list
	[ -n "$keep" ] || remove "$source" "$keyring" /etc/apt/keyrings/aks-flex-node.gpg
}

remove_program() {
	running=''
	[ ! -d /run/systemd/system ] || running=yes
	if [ -e "$unit" ]; then
		change systemctl disable ${running:+--now} "$service"
		[ -n "$keep" ] || refuse_node # it may have joined meanwhile
	fi
	remove "$unit" "$program" "$doc/NOTICE"
	docs=${doc%/*}
	[ -e "$own/made" ] || docs=''
	for dir in "$doc" $docs; do # install.sh has made them; others may use them by now
		[ ! -d "$dir" ] || change rmdir "$dir" 2>/dev/null || true
	done
	remove "$own"
	[ -z "$running" ] || change systemctl daemon-reload
}

main() {
	force='' dry_run=''
	keep=${AKS_FLEX_NODE_REMOVE:-}
	[ "$keep" = keep ] || keep=''
	for argument; do
		case "$argument" in
		--force) force=yes ;;
		--dry-run) dry_run=yes ;;
		-h | --help) usage && exit ;;
		*) usage >&2 && exit 2 ;;
		esac
	done
	[ -n "$dry_run" ] || [ "$(id -u)" = 0 ] || fail 'must be run by root: use sudo'
	[ -n "$keep" ] || refuse_node
	ask
	remove_packages
	if [ -e "$program" ] || [ -e "$unit" ] || [ -e "$own" ] || [ -e "$program.new" ] ||
		[ -e "$unit.new" ]; then
		remove_program
	fi
	if [ -z "$keep" ]; then
		refuse_node
		remove "$config_dir/config.json" "$config_dir/config.json.sample" "$state" \
			/var/log/aks-flex-node /run/aks-flex-node
		if [ -d "$config_dir" ] && [ -z "$dry_run" ] && ! rmdir "$config_dir" 2>/dev/null; then
			echo "uninstall.sh: $config_dir has other files, and remains"
		fi
	fi
	for other in azcmagent az; do
		! command -v "$other" >/dev/null || echo "uninstall.sh: $other is left as it is"
	done
}

main "$@"
