# Where the parts of an installation lie; read by install.sh and uninstall.sh, which must agree.
root=${DESTDIR:-}
root=${root%/}
PREFIX=${PREFIX:-/opt/nodeagent}
case $PREFIX in
    /?*[!/]) ;;
    *) echo "PREFIX must be an absolute path without a slash at its end, not '$PREFIX'" >&2; exit 64 ;;
esac
COMMAND_DIRECTORY=/usr/local/bin
UNIT=/etc/systemd/system/nodeagent.service
CATALOG=/usr/lib/systemd/catalog/nodeagent.catalog
SYSUSERS=/usr/lib/sysusers.d/nodeagent.conf
TMPFILES=/usr/lib/tmpfiles.d/nodeagent.conf
CONFIGURATION=/etc/nodeagent
STATE=/var/lib/nodeagent
DOCUMENTATION=/usr/share/doc/nodeagent

# `venv --clear` and the removal below delete all of PREFIX, so it must be ours or empty.
refuse_foreign_prefix() {
    if [ -n "$(ls -A "$root$PREFIX" 2> /dev/null)" ] && [ ! -e "$root$PREFIX/pyvenv.cfg" ]; then
        echo "$root$PREFIX holds something other than a virtual environment; choose another PREFIX" >&2
        exit 64
    fi
}
