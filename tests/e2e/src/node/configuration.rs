//! The files a node boots with.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;

use super::PAUSE;
use crate::control_plane::{Ground, merge, write_kubeconfig};
use crate::network::Network;
use crate::options::{NodeOptions, Options};

/// Writes everything under the node's `/etc` before the node boots.
pub(super) fn write(
    etc: &Path,
    index: u8,
    options: &NodeOptions,
    all: &Options,
    ground: &Ground<'_>,
    registry: SocketAddr,
) -> anyhow::Result<()> {
    let put = |at: &str, text: String| -> anyhow::Result<()> {
        let at = etc.join(at);
        fs::create_dir_all(at.parent().unwrap_or(etc))?;
        Ok(fs::write(at, text)?)
    };
    put("containerd/config.toml", containerd(options))?;
    put("containerd/certs.d/_default/hosts.toml", registry_hosts(registry))?;
    if let Some(network) = ground.network {
        put("cni/net.d/10-divvy.conflist", pod_network(network, index))?;
        let user = format!("system:node:{}", options.name);
        let file = format!("kubelet-{}", options.name);
        let server = format!("https://{}:443", network.api_server());
        let kubeconfig = write_kubeconfig(ground, &server, &file, &user, Some("system:nodes"))?;
        put("kubernetes/kubelet.kubeconfig", fs::read_to_string(kubeconfig)?)?;
    }
    put("kubernetes/ca.crt", fs::read_to_string(ground.authority.certificate())?)?;
    put("kubernetes/kubelet.json", kubelet(options, all)?)
}

fn containerd(options: &NodeOptions) -> String {
    // Without restrict_oom_score_adj no container starts where root lacks CAP_SYS_RESOURCE, as in many virtual machines.
    format!(
        r#"version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{PAUSE}"
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = "/etc/containerd/certs.d"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["/etc/cdi", "/run/cdi"]
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "/etc/cni/net.d"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
{}
"#,
        options.containerd
    )
}

/// Every registry is answered by ours, and nobody else is asked.
fn registry_hosts(registry: SocketAddr) -> String {
    format!("server = \"http://{registry}\"\n[host.\"http://{registry}\"]\n  capabilities = [\"pull\", \"resolve\"]\n")
}

fn pod_network(network: &Network, index: u8) -> String {
    let bridge = json!({
        "type": "bridge",
        "bridge": "pods",
        "isGateway": true,
        "ipMasq": false,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": network.pods(index)}]], "routes": [{"dst": "0.0.0.0/0"}]},
    });
    json!({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}).to_string()
}

fn kubelet(options: &NodeOptions, all: &Options) -> anyhow::Result<String> {
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "failSwapOn": false,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "resolvConf": "",
        "nodeStatusUpdateFrequency": "2s",
        // A full disk of the developer's machine is no reason to refuse a test's pods.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "50Mi"},
        "featureGates": all.feature_gates,
    });
    merge(&mut config, &options.kubelet);
    Ok(serde_json::to_string_pretty(&config)?)
}
