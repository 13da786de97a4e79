//! What a container needs of the driver on the host: device nodes and libraries; or, on a machine without a card, the fake
//! driver's two libraries and the folder that holds its simulated cards.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Part, Settings};
use crate::edits::{ContainerEdits, DeviceNode, Mount, VISIBLE_DEVICES};

/// Where the fake driver looks for its simulated cards when nothing else is said.
const FAKE_STATE_INSIDE: &str = "/run/fake-gpu";
/// Where the fake driver looks for a node of each card a container was given.
const FAKE_NODES: &str = "/dev/fake-gpu";
/// Folders in which one loader or the other looks for libraries by default.
const FAKE_LIBRARY_DIRS: [&str; 2] = ["/usr/lib", "/usr/lib64"];

/// Folders in which distributions keep the driver's libraries.
const LIBRARY_DIRS: &[&str] =
    &["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib/aarch64-linux-gnu", "usr/lib", "usr/local/nvidia/lib64"];
/// Libraries that computing and `nvidia-smi` need, by their names without version.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("libcuda.so", &["libcuda.so.1", "libcuda.so"]),
    ("libnvidia-ml.so", &["libnvidia-ml.so.1"]),
    ("libnvidia-ptxjitcompiler.so", &["libnvidia-ptxjitcompiler.so.1"]),
    ("libnvidia-nvvm.so", &["libnvidia-nvvm.so.4"]),
    ("libcudadebugger.so", &["libcudadebugger.so.1"]),
    ("libnvidia-cfg.so", &["libnvidia-cfg.so.1"]),
    ("libnvidia-opencl.so", &["libnvidia-opencl.so.1"]),
    ("libnvidia-allocator.so", &["libnvidia-allocator.so.1"]),
    ("libnvidia-gpucomp.so", &[]),
    ("libnvidia-pkcs11.so", &[]),
    ("libnvidia-pkcs11-openssl3.so", &[]),
];
/// Programs that people expect in a GPU container.
const PROGRAMS: &[&str] = &["usr/bin/nvidia-smi", "usr/bin/nvidia-debugdump", "usr/bin/nvidia-cuda-mps-control"];
/// Nodes that belong to no single card.
const SHARED_NODES: &[&str] = &["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"];

/// Where the driver's files are.
pub(crate) enum Files {
    /// A driver on the host.
    Real {
        /// Libraries and programs to show in the container.
        mounts: Vec<Mount>,
        /// Nodes every container with a card needs.
        shared: Vec<PathBuf>,
    },
    /// The fake driver.
    Fake {
        /// The folder with the two libraries.
        libraries: PathBuf,
        /// The simulated cards.
        state: PathBuf,
    },
}

impl Files {
    pub(super) fn find(settings: &Settings, version: &str) -> Files {
        if let (Some(libraries), Some(state)) = (&settings.fake_driver, &settings.fake_state) {
            return Files::Fake { libraries: libraries.clone(), state: state.clone() };
        }
        let nodes = SHARED_NODES.iter().map(|n| Path::new("/dev").join(n));
        let shared = nodes.filter(|n| settings.on_host(n).exists()).collect();
        let seen = settings.on_host(&settings.driver_root);
        Files::Real { mounts: driver_mounts(&seen, &settings.driver_root, version), shared }
    }

    /// What a container with these parts needs. `minors` are the numbers of the cards' nodes.
    pub(crate) fn edits(&self, parts: &[Part<'_>], minors: &HashMap<String, u32>) -> Result<ContainerEdits, String> {
        let mut edits = self.nodes_and_libraries(parts, minors)?;
        let ids: Vec<&str> = parts.iter().map(|p| p.device.id.as_str()).collect();
        edits.env.insert(VISIBLE_DEVICES.into(), ids.join(","));
        edits.env.insert("NVIDIA_DRIVER_CAPABILITIES".into(), "compute,utility".into());
        Ok(edits)
    }

    fn nodes_and_libraries(&self, parts: &[Part<'_>], minors: &HashMap<String, u32>) -> Result<ContainerEdits, String> {
        match self {
            Files::Real { mounts, shared } => {
                let mut edits = ContainerEdits { mounts: mounts.clone(), ..ContainerEdits::default() };
                for part in parts {
                    // A partition is reached through its card's node; the capability nodes of MIG come from NVIDIA's runtime.
                    let card = part.device.attributes.get("parent").map_or(part.device.id.as_str(), String::as_str);
                    let minor =
                        minors.get(card).ok_or_else(|| format!("{card} has no device node: was it discovered?"))?;
                    let node = DeviceNode::same(format!("/dev/nvidia{minor}"));
                    if !edits.devices.contains(&node) {
                        edits.devices.push(node);
                    }
                }
                edits.devices.extend(shared.iter().map(DeviceNode::same));
                Ok(edits)
            }
            Files::Fake { libraries, state } => {
                let mut edits = ContainerEdits::default();
                for library in ["libcuda.so.1", "libnvidia-ml.so.1"] {
                    let host = libraries.join(library);
                    edits
                        .mounts
                        .extend(FAKE_LIBRARY_DIRS.map(|dir| Mount::read_only(&host, format!("{dir}/{library}"))));
                }
                edits.mounts.push(Mount::writable(state, FAKE_STATE_INSIDE));
                let node = |part: &Part<'_>| DeviceNode {
                    host: "/dev/null".into(),
                    container: Path::new(FAKE_NODES).join(part.device.id.as_str()),
                };
                edits.devices = parts.iter().map(node).collect();
                Ok(edits)
            }
        }
    }
}

/// Mounts of the driver's files under the names by which programs look for them; this process sees `root` at `seen`. A root that has none gives none: where
/// NVIDIA's own runtime is used, it brings them by itself.
fn driver_mounts(seen: &Path, root: &Path, version: &str) -> Vec<Mount> {
    let mut mounts = Vec::new();
    for dir in LIBRARY_DIRS {
        if !seen.join(dir).join(format!("libcuda.so.{version}")).exists() {
            continue;
        }
        for (library, aliases) in LIBRARIES {
            let file = format!("{library}.{version}");
            if !seen.join(dir).join(&file).exists() {
                continue;
            }
            let host = root.join(dir).join(&file);
            let inside = Path::new("/").join(dir);
            mounts.push(Mount::read_only(&host, inside.join(&file)));
            mounts.extend(aliases.iter().map(|alias| Mount::read_only(&host, inside.join(alias))));
        }
        break;
    }
    for program in PROGRAMS {
        if !mounts.is_empty() && seen.join(program).exists() {
            mounts.push(Mount::read_only(root.join(program), Path::new("/").join(program)));
        }
    }
    mounts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_libraries_are_shown_under_the_names_programs_look_for() {
        let root = tempfile::tempdir().unwrap();
        let libs = root.path().join("usr/lib64");
        std::fs::create_dir_all(&libs).unwrap();
        for file in ["libcuda.so.580.1", "libnvidia-ml.so.580.1", "libnvidia-ml.so.470.9"] {
            std::fs::write(libs.join(file), "").unwrap();
        }
        let inside: Vec<String> = driver_mounts(root.path(), Path::new("/opt/driver"), "580.1")
            .iter()
            .map(|m| m.container.display().to_string())
            .collect();
        assert_eq!(
            inside,
            [
                "/usr/lib64/libcuda.so.580.1",
                "/usr/lib64/libcuda.so.1",
                "/usr/lib64/libcuda.so",
                "/usr/lib64/libnvidia-ml.so.580.1",
                "/usr/lib64/libnvidia-ml.so.1"
            ]
        );
        assert!(driver_mounts(root.path(), Path::new("/"), "999").is_empty());
    }
}
