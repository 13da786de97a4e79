#!/bin/sh
# Wires Divvy into a kubeadm cluster: checks it, installs the chart, waits until it works.
#
#   deploy/kubeadm/wire.sh [--dry-run] [--extender] [--registry REGISTRY] [--values FILE]
#
# --extender   run on a control-plane machine as root: the cluster's own kube-scheduler places GPU pods and asks Divvy. Its static pod
#              manifest is kept as /etc/kubernetes/divvy-undo/kube-scheduler.yaml.
# Needs kubectl and helm, with a kubeconfig of an administrator. deploy/kubeadm/undo.sh takes everything back.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$here/../..
namespace=${DIVVY_NAMESPACE:-divvy-system}
manifests=${KUBEADM_MANIFESTS:-/etc/kubernetes/manifests}
kept=${KUBEADM_KEPT:-/etc/kubernetes/divvy-undo}
dry='' extender='' registry='' values=''
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) dry=1 ;;
    --extender) extender=1 ;;
    --registry) registry=$2; shift ;;
    --values) values=$2; shift ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift
done

say() { printf '%s\n' "==> $*"; }
# Does it, or only says so.
do_it() {
    printf '    %s\n' "$*"
    [ -n "$dry" ] || "$@"
}

say "checks"
for tool in kubectl helm; do
    command -v "$tool" >/dev/null || { echo "$tool is not on the PATH" >&2; exit 1; }
done
kubectl get --raw /readyz >/dev/null || { echo "the API server does not answer" >&2; exit 1; }
kubectl auth can-i '*' '*' --all-namespaces >/dev/null || { echo "this kubeconfig is not an administrator's" >&2; exit 1; }

if [ -n "$extender" ]; then
    manifest=$manifests/kube-scheduler.yaml
    [ -f "$manifest" ] || { echo "no $manifest: --extender is for a control-plane machine of kubeadm" >&2; exit 1; }
fi

say "the chart, into $namespace"
set -- upgrade --install divvy "$root/charts/divvy" --namespace "$namespace" --create-namespace
[ -z "$registry" ] || set -- "$@" --set "image.registry=$registry"
[ -z "$values" ] || set -- "$@" --values "$values"
[ -z "$extender" ] || set -- "$@" --set scheduler.mode=extender --set kubeScheduler.bundled=false --set kubeScheduler.profile=default-scheduler
do_it helm "$@"
do_it kubectl label namespace "$namespace" --overwrite pod-security.kubernetes.io/enforce=privileged
do_it kubectl -n "$namespace" rollout status deployment/divvy --timeout=5m
do_it kubectl -n "$namespace" rollout status daemonset/divvy-agent --timeout=5m

if [ -n "$extender" ]; then
    say "the cluster's kube-scheduler asks Divvy"
    # A static pod has no cluster DNS: the Service's address.
    address=ADDRESS
    [ -n "$dry" ] || address=$(kubectl -n "$namespace" get service divvy-extender -o 'jsonpath={.spec.clusterIP}')
    do_it mkdir -p "$kept"
    [ -f "$kept/kube-scheduler.yaml" ] || do_it cp "$manifest" "$kept/kube-scheduler.yaml"
    config=$(dirname "$manifests")/divvy-kube-scheduler.yaml
    # What kube-scheduler shows the extender, and what it believes: the same Secret as the controller's.
    shown=$(dirname "$manifests")/divvy-extender
    printf '    %s\n' "write the extender's certificate into $shown"
    if [ -z "$dry" ]; then
        secret=$(kubectl -n "$namespace" get deployment divvy -o 'jsonpath={.spec.template.spec.volumes[?(@.name=="extender")].secret.secretName}')
        (
            umask 077
            mkdir -p "$shown"
            for file in tls.crt tls.key ca.crt; do
                kubectl -n "$namespace" get secret "$secret" -o "go-template={{index .data \"$file\" | base64decode}}" >"$shown/$file"
                [ -s "$shown/$file" ] || { echo "the Secret $secret in $namespace has no $file" >&2; exit 1; }
            done
        )
    fi
    printf '    %s\n' "write $config, and name it in $manifest"
    if [ -z "$dry" ]; then
        {
            sed -e "s/\(urlPrefix: .*\)divvy-extender\.divvy-system\.svc/\1$address/" -e "s/divvy-system/$namespace/" \
                -e "s,/etc/kubernetes/divvy-extender,$shown," "$root/deploy/kube-scheduler.yaml"
            printf 'clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}\n'
        } >"$config"
        # Beside the kubeconfig, which the pod mounts by itself already; ours are one more file and a folder.
        awk -v config="$config" -v shown="$shown" '
            { print }
            /^    - kube-scheduler$/ { print "    - --config=" config }
            /^    volumeMounts:$/ {
                print "    - {mountPath: " config ", name: divvy, readOnly: true}"
                print "    - {mountPath: " shown ", name: divvy-extender, readOnly: true}"
            }
            /^  volumes:$/ {
                print "  - {name: divvy, hostPath: {path: " config ", type: File}}"
                print "  - {name: divvy-extender, hostPath: {path: " shown ", type: Directory}}"
            }
        ' "$kept/kube-scheduler.yaml" >"$kept/kube-scheduler.new"
        mv "$kept/kube-scheduler.new" "$manifest"
    fi
fi

say "done; kubectl divvy doctor looks whether everything works"
