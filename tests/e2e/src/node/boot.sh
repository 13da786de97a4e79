#!/bin/sh
# boot.sh FOLDER INIT: process 1 of a node, in namespaces of its own. Gives the node the folders a machine has for itself, then
# becomes INIT, which only collects the dead. FOLDER/root keeps what the node writes.
set -eu
folder=$1 init=$2
# The old /proc still speaks of the outer processes: this is our number out there.
read -r outer rest </proc/self/stat
mount --make-rprivate /
mount -t proc proc /proc

# Control groups: the same hierarchies at the same places, seen from this node's own root.
awk '$3 ~ /^cgroup2?$/ { print $2, $3, $4 }' /proc/mounts >"$folder/hierarchies"
if [ "$(stat -f -c %T /sys/fs/cgroup)" = tmpfs ]; then
	umount -R /sys/fs/cgroup
	mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
	while read -r at kind options; do
		mkdir -p "$at"
		if [ "$kind" = cgroup2 ]; then
			mount -t cgroup2 cgroup2 "$at"
		else
			mount -t cgroup -o "$(echo "$options" | tr , '\n' | grep -vE '^(rw|relatime|nosuid|nodev|noexec|release_agent=.*)$' | paste -sd,)" cgroup "$at"
		fi
	done <"$folder/hierarchies"
else
	umount -R /sys/fs/cgroup
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	# On the unified hierarchy a group with children that have limits may hold no process itself.
	mkdir -p /sys/fs/cgroup/init
	echo 1 >/sys/fs/cgroup/init/cgroup.procs
	sed 's/\([a-z]\+\)/+\1/g' /sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control
fi

# Folders of the node alone, empty at first.
for at in /run /var/lib /var/log; do
	mkdir -p "$folder/root$at"
	mount --bind "$folder/root$at" "$at"
done
# Folders that begin as this machine's and keep the node's changes to themselves.
for at in /etc /opt /usr/local; do
	mkdir -p "$folder/root$at" "$folder/work$at"
	mount -t overlay -o "lowerdir=$at,upperdir=$folder/root$at,workdir=$folder/work$at" overlay "$at"
done
# Devices: the harmless ones.
mkdir -p "$folder/root/dev"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/kmsg "$folder/root/dev/"
mount -t tmpfs -o mode=755 dev /dev
cp -a "$folder/root/dev/"* /dev/
mkdir /dev/pts /dev/shm /dev/mqueue
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t mqueue mqueue /dev/mqueue
ln -s pts/ptmx /dev/ptmx
ln -s /proc/self/fd /dev/fd

mkdir -p /run/lock /run/cdi /var/lib/kubelet /var/lib/containerd
echo 1 >/proc/sys/net/ipv4/ip_forward
# Volumes that kubelets mount must be able to reach containers that asked for it.
mount --make-rshared /
echo "$outer" >"$folder/init.pid.new"
mv "$folder/init.pid.new" "$folder/init.pid"
exec "$init"
