#!/bin/sh
# Installs the Debian packages that a make target needs and that are missing, after naming them.
# usage: ensure.sh run|demo|test     Elsewhere than as root on Debian it names the command and stops.
set -eu

missing=""
command_from() { # COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
file_from() { # FILE PACKAGE
    [ -e "$1" ] || missing="$missing $2"
}

need_to_run() {
    command_from python3 python3
    if ! command -v python3 >/dev/null 2>&1 || ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        missing="$missing python3-venv"
    fi
}

need_to_demo() {
    need_to_run
    command_from gcc gcc
    file_from /usr/include/stdio.h libc6-dev
}

need_to_test() {
    need_to_demo
    command_from git git
    python3 -c 'import os, sysconfig, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
        2>/dev/null || missing="$missing python3-dev"
    command_from unshare util-linux
    command_from mount mount
    command_from mkfs.ext4 e2fsprogs
    command_from ip iproute2
    command_from iptables-nft iptables
    command_from ipset ipset
    command_from nft nftables
    command_from strace strace
    command_from ps procps
    file_from /lib/systemd/systemd systemd
    command_from systemd-sysusers systemd
}

case "${1:-}" in
    run) need_to_run ;;
    demo) need_to_demo ;;
    test) need_to_test ;;
    *) echo "usage: ensure.sh run|demo|test" >&2; exit 64 ;;
esac

# shellcheck disable=SC2086  # a list of words on purpose
set -- $(printf '%s\n' $missing | sort -u)
[ $# -gt 0 ] || exit 0

install="apt-get install --yes --no-install-recommends $*"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "Missing: $*. As root on Debian: $install" >&2
    exit 69
fi
echo "Missing Debian packages: $*"
echo "Installing them with: $install"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
$install -qq >/dev/null
