//! Container edits as bytes to append to a `CreateContainerRequest`.
//!
//! Protobuf merges a message that is encoded twice: repeated fields are concatenated. So the request itself is not touched, and
//! what newer kubelets put into it, known to us or not, arrives as it was.

use divvy_proto::cri::{ContainerConfig, CreateContainerRequest, Device, KeyValue, Mount};
use prost::Message;

use super::ContainerEdits;

/// What to append to the request's bytes.
pub fn delta(edits: &ContainerEdits) -> Vec<u8> {
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let env = |(key, value): (&String, &String)| KeyValue { key: key.clone(), value: value.clone().into_bytes() };
    let config = ContainerConfig {
        envs: edits.env.iter().map(env).collect(),
        mounts: edits
            .mounts
            .iter()
            .map(|m| Mount { container_path: text(&m.container), host_path: text(&m.host), readonly: m.read_only })
            .collect(),
        devices: edits
            .devices
            .iter()
            .map(|d| Device {
                container_path: text(&d.container),
                host_path: text(&d.host),
                permissions: "rwm".to_owned(),
            })
            .collect(),
        ..ContainerConfig::default()
    };
    CreateContainerRequest { config: Some(config), ..CreateContainerRequest::default() }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edits::{DeviceNode, Mount as HostMount};

    #[test]
    fn appended_edits_come_last_and_what_we_do_not_know_stays() {
        let kept = KeyValue { key: "NVIDIA_VISIBLE_DEVICES".into(), value: b"all".to_vec() };
        let config = ContainerConfig { envs: vec![kept.clone()], ..ContainerConfig::default() };
        let request = CreateContainerRequest {
            pod_sandbox_id: "s".into(),
            config: Some(config),
            ..CreateContainerRequest::default()
        };
        let mut bytes = request.encode_to_vec();
        // Field 999 of a kubelet of the future.
        prost::encoding::string::encode(999, &"from the future".to_owned(), &mut bytes);
        let before = bytes.clone();
        let mut edits = ContainerEdits::closed();
        edits.mounts.push(HostMount::read_only("/h", "/c"));
        edits.devices.push(DeviceNode::same("/dev/x"));
        bytes.extend(delta(&edits));
        assert!(bytes.starts_with(&before));
        let read = CreateContainerRequest::decode(bytes.as_slice()).unwrap();
        let config = read.config.unwrap();
        assert_eq!(read.pod_sandbox_id, "s");
        assert_eq!(config.envs[0], kept);
        assert_eq!(config.envs[1].value, b"void");
        assert_eq!((config.mounts.len(), config.devices.len()), (1, 1));
        assert!(config.mounts[0].readonly);
    }
}
