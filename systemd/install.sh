#!/bin/sh
# Installs nodeagent on this host or below DESTDIR: virtual environment, command, unit, catalog, users,
# directories, commented configuration. It never overwrites a configuration that is already there.
#
# DESTDIR    root to install below; nothing is reloaded or created on this host then
# PREFIX     where the virtual environment goes (/opt/nodeagent)
# PYTHON     interpreter to build it from (python3)
# WHEELHOUSE directory of wheels to install from, without a network; empty: the package index
# VENV=no    leaves the virtual environment alone (it is brought by other means)
set -eu
umask 022
cd "$(dirname "$0")/.."
. systemd/paths.sh

install_venv() {
    refuse_foreign_prefix
    "${PYTHON:-python3}" -m venv --clear "$root$PREFIX"
    if [ -n "${WHEELHOUSE:-}" ]; then
        "$root$PREFIX/bin/python" -m pip install --quiet --no-index --find-links "$WHEELHOUSE" nodeagent
    else
        # From a copy, because a build leaves root's files in the tree and takes old ones from there.
        source=$(mktemp -d)
        trap 'rm -rf "$source"' EXIT
        cp -R nodeagent setup.cfg pyproject.toml README.md "$source"
        "$root$PREFIX/bin/python" -m pip install --quiet --disable-pip-version-check "$source"
    fi
    # A venv knows its own path only by the first line of its scripts; below DESTDIR that line is wrong.
    if [ -n "$root" ]; then
        grep -rlI "^#!$root$PREFIX/" "$root$PREFIX/bin" | while read -r script; do
            sed -i "1s|^#!$root$PREFIX/|#!$PREFIX/|" "$script"
        done
    fi
}

install_files() {
    mkdir -p "$root$COMMAND_DIRECTORY"
    ln -sfn "$PREFIX/bin/nodeagent" "$root$COMMAND_DIRECTORY/nodeagent"
    mkdir -p "$(dirname "$root$UNIT")"
    sed "s|/opt/nodeagent/|$PREFIX/|g" systemd/nodeagent.service > "$root$UNIT"
    chmod 644 "$root$UNIT"
    install -D -m 644 systemd/nodeagent.catalog "$root$CATALOG"
    install -D -m 644 systemd/nodeagent.sysusers "$root$SYSUSERS"
    install -D -m 644 systemd/nodeagent.tmpfiles "$root$TMPFILES"
    install -D -m 644 README.md "$root$DOCUMENTATION/README.md"
}

install_configuration() {
    mkdir -p "$root$CONFIGURATION/conf.d"
    for fragment in systemd/conf.d/*.toml; do
        target="$root$CONFIGURATION/conf.d/$(basename "$fragment")"
        if [ -e "$target" ] && ! cmp -s "$fragment" "$target"; then
            echo "kept $target, which differs from the new one beside it: $target.dist"
            install -m 644 "$fragment" "$target.dist"
        else
            install -m 644 "$fragment" "$target"
        fi
    done
}

tell_system() {
    systemd-sysusers "$SYSUSERS"
    systemd-tmpfiles --create "$TMPFILES"
    journalctl --update-catalog
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        echo "installed; start it with: systemctl enable --now nodeagent && systemctl restart nodeagent"
    fi
}

[ "${VENV:-yes}" = no ] || install_venv
install_files
install_configuration
[ -n "$root" ] || tell_system
