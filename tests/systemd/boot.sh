#!/bin/sh
# Second half of machine.py: runs as the first process of fresh mount, pid, net, uts, ipc and cgroup
# namespaces, gives them filesystems of their own and becomes systemd. It must never mount, write or
# start anything before the propagation of its mounts is cut.
# usage: boot.sh VENV REPOSITORY
set -eu
venv=$1
repository=$2

mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755,size=256m tmpfs /run
mkdir -p /run/lock /run/layers /run/empty

# umount -R would stop at the first busy hierarchy; a fresh sysfs simply hides them all.
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -o bind,remount,ro /sys
mount --bind /proc/sys /proc/sys
mount -o bind,remount,ro /proc/sys

# /dev of its own: systemd changes modes and makes links there.
mkdir /run/dev
mount -t tmpfs -o mode=755,size=1m tmpfs /run/dev
for node in null zero full random urandom tty kmsg; do
    touch "/run/dev/$node"
    mount --bind "/dev/$node" "/run/dev/$node"
done
mkdir /run/dev/pts /run/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /run/dev/pts
mount -t tmpfs -o mode=1777,size=16m tmpfs /run/dev/shm
ln -s pts/ptmx /run/dev/ptmx
ln -s /proc/self/fd /run/dev/fd
mount --move /run/dev /dev

# Where an installation or a service writes, the host's files lie below a layer that vanishes.
layer() {
    mkdir -p "/run/layers/$2/upper" "/run/layers/$2/work"
    mount -t overlay -o "lowerdir=$1,upperdir=/run/layers/$2/upper,workdir=/run/layers/$2/work" overlay "$2"
}
for path in /etc /var /usr /opt /home /tmp; do
    layer "$path" "$path"
done
mount -t tmpfs -o mode=755,size=8m tmpfs /etc/systemd/system
mount --bind /run/empty /usr/lib/systemd/system/sysinit.target.wants
printf '' > /etc/fstab
printf '%032x\n' 7 > /etc/machine-id
printf '[Journal]\nReadKMsg=no\nStorage=volatile\nRateLimitIntervalSec=0\n' > /etc/systemd/journald.conf
# Both would reach outside: one remounts by fstab, the other takes the kernel's audit stream.
ln -s /dev/null /etc/systemd/system/systemd-remount-fs.service
ln -s /dev/null /etc/systemd/system/systemd-journald-audit.socket
printf '[Unit]\nRequires=basic.target\nAfter=basic.target\n' > /etc/systemd/system/harness.target
ln -s harness.target /etc/systemd/system/default.target
mkdir -p /opt/nodeagent
layer "$venv" /opt/nodeagent
# As `make install` leaves it: the package inside the environment, since the sandbox hides /tmp.
for packages in /opt/nodeagent/lib/python3.*/site-packages; do
    rm -rf "$packages"/__editable__*nodeagent* "$packages"/nodeagent
    cp -R "$repository/nodeagent" "$packages/nodeagent"
done
cat > /opt/nodeagent/bin/nodeagent <<END
#!/opt/nodeagent/bin/python
import sys

from nodeagent.cli import main

sys.exit(main())
END
chmod 755 /opt/nodeagent/bin/nodeagent
rm -rf /var/lib/nodeagent /etc/nodeagent /var/log/journal
cd "$repository"

hostname nodeagent-test
hostname > /etc/hostname
export container=nodeagent-test
exec env -i container=nodeagent-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=harness.target --log-target=journal --log-level=notice --show-status=no
