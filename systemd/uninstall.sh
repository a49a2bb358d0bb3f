#!/bin/sh
# Removes what install.sh put in place. An edited configuration and the agent's memory are kept and named,
# unless PURGE=1. What the agent made in the kernel (rules, sets, classes) is taken away first.
#
# DESTDIR, PREFIX as for install.sh; VENV=no leaves the virtual environment alone
set -eu
cd "$(dirname "$0")/.."
. systemd/paths.sh

remove_configuration() {
    for fragment in systemd/conf.d/*.toml; do
        target="$root$CONFIGURATION/conf.d/$(basename "$fragment")"
        rm -f "$target.dist"
        if cmp -s "$fragment" "$target"; then
            rm -f "$target"
        fi
    done
    rmdir "$root$CONFIGURATION/conf.d" "$root$CONFIGURATION" 2> /dev/null || true
}

name_what_is_kept() {
    kept=$(find "$root$CONFIGURATION" "$root$STATE" -type f 2> /dev/null || true)
    [ -z "$kept" ] || printf 'kept, PURGE=1 removes it:\n%s\n' "$kept"
}

clean_kernel() {
    [ -x "$COMMAND_DIRECTORY/nodeagent" ] || return 0
    "$COMMAND_DIRECTORY/nodeagent" net cleanup || {
        echo "rules or classes of the agent are left in the kernel: see above; nothing was uninstalled" >&2
        exit 1
    }
}

if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl disable --now nodeagent 2> /dev/null || true
fi
[ -n "$root" ] || clean_kernel
rm -f "$root$UNIT" "$root$CATALOG" "$root$SYSUSERS" "$root$TMPFILES"
if [ "$(readlink "$root$COMMAND_DIRECTORY/nodeagent" || true)" = "$PREFIX/bin/nodeagent" ]; then
    rm -f "$root$COMMAND_DIRECTORY/nodeagent"
fi
rm -rf "$root$DOCUMENTATION"
if [ "${VENV:-yes}" != no ]; then
    refuse_foreign_prefix
    rm -rf "$root$PREFIX"
fi
if [ "${PURGE:-0}" = 1 ]; then
    rm -rf "$root$CONFIGURATION" "$root$STATE"
else
    remove_configuration
    rmdir "$root$STATE" 2> /dev/null || true
    name_what_is_kept
fi
if [ -z "$root" ]; then
    rm -rf /run/nodeagent
    journalctl --update-catalog
    [ ! -d /run/systemd/system ] || systemctl daemon-reload
    [ "${PURGE:-0}" != 1 ] || ! getent group nodeagent > /dev/null || groupdel nodeagent
fi
