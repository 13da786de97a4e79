//! From a process to the container it runs in, by its cgroup: the one mark a process cannot change by itself.

use divvy_core::id::PodUid;

/// A container, as its cgroup names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The pod's uid.
    pub pod: PodUid,
    /// The runtime's id of the container.
    pub container: String,
}

/// Reads `/proc/PID/cgroup`. `None` for a process outside Kubernetes' containers.
pub fn of(pid: u32) -> Option<Place> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// Finds pod and container in the text of a cgroup file, as the cgroupfs and the systemd drivers write it, on version 1, 2
/// and both.
pub fn parse(text: &str) -> Option<Place> {
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find_map(place)
}

/// `/kubepods/burstable/pod<uid>/<id>` or `/kubepods.slice/.../kubepods-pod<uid with _>.slice/cri-containerd-<id>.scope`.
fn place(path: &str) -> Option<Place> {
    let mut pod = None;
    for part in path.split('/') {
        if let Some(found) = &pod {
            return Some(Place { pod: PodUid::from(String::clone(found)), container: container(part)? });
        }
        pod = uid(part);
    }
    None
}

fn uid(part: &str) -> Option<String> {
    let plain = part.strip_suffix(".slice").unwrap_or(part);
    let at = if plain.starts_with("pod") { 0 } else { plain.rfind("-pod")? + 1 };
    let text = plain[at..].strip_prefix("pod")?.replace('_', "-");
    // Mirror pods of static ones have a hash for a uid, all others a UUID.
    (text.len() >= 32 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')).then_some(text)
}

fn container(part: &str) -> Option<String> {
    let plain = part.strip_suffix(".scope").unwrap_or(part);
    let id = plain.rsplit('-').next()?;
    (id.len() == 64 && id.chars().all(|c| c.is_ascii_hexdigit())).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f3b1c7e-1111-4222-8333-444455556666";
    const ID: &str = "aa11bb22cc33dd44ee55ff6600112233445566778899aabbccddeeff00112233";

    fn check(text: &str) {
        assert_eq!(parse(text), Some(Place { pod: UID.into(), container: ID.into() }), "{text}");
    }

    #[test]
    fn both_drivers_and_both_versions_are_understood() {
        check(&format!("0::/kubepods/besteffort/pod{UID}/{ID}\n"));
        check(&format!("12:memory:/kubepods/pod{UID}/{ID}\n0::/\n"));
        check(&format!("5:cpu,cpuacct:/kubepods/burstable/pod{UID}/{ID}/nested\n"));
        let flat = UID.replace('-', "_");
        check(&format!(
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{flat}.slice/cri-containerd-{ID}.scope\n"
        ));
        check(&format!("0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{flat}.slice/crio-{ID}.scope"));
    }

    #[test]
    fn processes_outside_containers_have_no_place() {
        for text in
            ["", "0::/", "0::/system.slice/ssh.service", &format!("0::/kubepods/pod{UID}"), "garbage", "0::/pod/x"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
