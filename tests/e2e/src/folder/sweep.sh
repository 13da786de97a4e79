#!/bin/sh
# sweep.sh FOLDER: waits until the owner of the cluster in FOLDER is gone, then removes what is left of the cluster.
# The owner holds the other end of our standard input; it closes however the owner ends. The kernel has killed by then what asked
# to die with the owner; a node's containers, mounts and networks die with its namespaces.
folder=$1
cat >/dev/null
ours() {
	for process in /proc/[0-9]*; do
		case "$(readlink "$process/cwd" 2>/dev/null)" in
		"$folder" | "$folder"/*) echo "${process#/proc/}" ;;
		esac
	done
}
tries=0
while pids=$(ours) && [ -n "$pids" ] && [ $tries -lt 200 ]; do
	kill -9 $pids 2>/dev/null
	tries=$((tries + 1))
	sleep 0.05
done
if [ -f "$folder/bridge" ]; then
	bridge=$(cat "$folder/bridge")
	# The links into the nodes too: a connection that is still closing keeps a node's network alive for minutes.
	for link in $(ls /sys/class/net | grep -E "^$bridge(n[0-9]+)?\$"); do
		ip link delete "$link"
	done
fi
for name in $(cat "$folder/cgroups" 2>/dev/null); do
	for hierarchy in $(awk '$3 ~ /^cgroup2?$/ { print $2 }' /proc/mounts); do
		tries=0
		while [ -d "$hierarchy/$name" ] && [ $tries -lt 200 ]; do
			find "$hierarchy/$name" -depth -type d -exec rmdir {} \; 2>/dev/null
			[ -d "$hierarchy/$name" ] && sleep 0.05
			tries=$((tries + 1))
		done
	done
done
[ -f "$folder/keep" ] || rm -rf "$folder"
