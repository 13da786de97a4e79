#!/bin/sh
# Takes back what wire.sh did.
#
#   deploy/kubeadm/undo.sh [--dry-run] [--everything]
#
# Running GPU containers run on. --everything also removes policies and budgets (the custom resource definitions) and what Divvy
# wrote on nodes; not while pods hold grants.
set -eu

namespace=${DIVVY_NAMESPACE:-divvy-system}
manifests=${KUBEADM_MANIFESTS:-/etc/kubernetes/manifests}
kept=${KUBEADM_KEPT:-/etc/kubernetes/divvy-undo}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
dry='' everything=''
for word in "$@"; do
    case $word in
    --dry-run) dry=1 ;;
    --everything) everything=1 ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done

say() { printf '%s\n' "==> $*"; }
do_it() {
    printf '    %s\n' "$*"
    [ -n "$dry" ] || "$@"
}

if [ -f "$kept/kube-scheduler.yaml" ]; then
    say "the cluster's kube-scheduler as it was"
    do_it cp "$kept/kube-scheduler.yaml" "$manifests/kube-scheduler.yaml"
    do_it rm -rf "$kept" "$(dirname "$manifests")/divvy-kube-scheduler.yaml" "$(dirname "$manifests")/divvy-extender"
fi

say "the chart"
do_it helm uninstall divvy --namespace "$namespace" --ignore-not-found --wait

if [ -n "$everything" ]; then
    held=$(kubectl get pods --all-namespaces -o 'jsonpath={range .items[?(@.metadata.annotations.divvy\.dev/grant)]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}' \
        --field-selector=status.phase=Running)
    if [ -n "$held" ]; then
        printf 'these pods still hold grants; delete them first:\n%s\n' "$held" >&2
        exit 1
    fi
    say "what is left"
    do_it kubectl delete --ignore-not-found -f "$here/../crds"
    for key in inventory agent journal-cut cordon; do
        do_it kubectl annotate nodes --all "divvy.dev/$key-"
    done
    do_it kubectl delete namespace "$namespace" --ignore-not-found
    printf '    %s\n' "on every node: rm -rf /run/divvy /var/lib/divvy /var/run/cdi/divvy-*.json"
fi
say "done"
