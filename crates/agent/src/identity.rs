//! Whose slots are these? `PreStartContainer` names ids and nothing else; the kubelet's own records say the rest.
//!
//! Two records name the holder of an id:
//! - the **checkpoint** in the device plugins' folder, written before any container of the pod starts: pod uid, container name
//!   (init containers too) and ids;
//! - the **pod-resources API**: namespace, name, container and ids, without init containers that end.
//!
//! The first is exact and is used where it can be read. With the second alone, a container is found by an id it shares with
//! its pod: an init container's ids are taken over by the pod's main containers.
//!
//! An init container and a main container of one pod can hold the *same* ids. They are told apart by what the runtime has
//! seen of the pod's current sandbox, which is also what the kubelet goes by: the first init container, in order, that has
//! not ended well is the one that starts; when a main container has ever been made, or all have ended well, it is the main one.

use std::collections::BTreeSet;

use divvy_core::ask::Role;
use divvy_core::id::{ContainerName, PodKey, PodUid};

/// A line of the kubelet's checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The pod.
    pub pod: PodUid,
    /// The container.
    pub container: ContainerName,
    /// Its slots.
    pub ids: BTreeSet<String>,
}

/// A line of the pod-resources API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The pod, by name: this API knows no uid.
    pub pod: PodKey,
    /// The container.
    pub container: ContainerName,
    /// Its slots.
    pub ids: BTreeSet<String>,
}

/// A container of a pod's manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: ContainerName,
    /// When it runs.
    pub role: Role,
    /// How many slots its manifest asks.
    pub slots: usize,
}

/// What the runtime has seen of a pod's current sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Init containers that ended well.
    pub done: BTreeSet<ContainerName>,
    /// A main container was made, whatever became of it.
    pub main_made: bool,
}

/// The pod that holds `ids`, and the names of its containers that may be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// By the checkpoint.
    Exact(PodUid, Vec<ContainerName>),
    /// By the API: the pod of this name; which container is for [`which`] to say.
    Named(PodKey, Vec<ContainerName>),
}

/// Why nobody can be named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// No record has these ids.
    #[error("the kubelet's records name no pod for {0:?}")]
    Nobody(Vec<String>),
    /// The records contradict themselves.
    #[error("the kubelet's records name several pods for {0:?}")]
    Several(Vec<String>),
    /// The pod is known and none of its containers fits.
    #[error("no container of the pod fits {0:?}")]
    NoContainer(Vec<String>),
}

/// Finds the holder of `ids`.
pub fn owner(ids: &BTreeSet<String>, checkpoint: Option<&[Entry]>, listed: &[Listed]) -> Result<Owner, Unclear> {
    let names = || ids.iter().cloned().collect::<Vec<_>>();
    if let Some(entries) = checkpoint {
        let same: Vec<&Entry> = entries.iter().filter(|e| e.ids == *ids).collect();
        let Some(first) = same.first() else { return Err(Unclear::Nobody(names())) };
        if same.iter().any(|e| e.pod != first.pod) {
            return Err(Unclear::Several(names()));
        }
        return Ok(Owner::Exact(first.pod.clone(), same.iter().map(|e| e.container.clone()).collect()));
    }
    let sharing: Vec<&Listed> = listed.iter().filter(|l| !l.ids.is_disjoint(ids)).collect();
    let Some(first) = sharing.first() else { return Err(Unclear::Nobody(names())) };
    if sharing.iter().any(|l| l.pod != first.pod) {
        return Err(Unclear::Several(names()));
    }
    let equal = sharing.iter().filter(|l| l.ids == *ids).map(|l| l.container.clone()).collect();
    Ok(Owner::Named(first.pod.clone(), equal))
}

/// Which container of the pod is about to start, among those that hold `count` ids.
pub fn which(owner: &Owner, members: &[Member], count: usize, seen: &Seen) -> Result<ContainerName, Unclear> {
    let (named, may_be_unlisted) = match owner {
        Owner::Exact(_, named) => (named, false),
        Owner::Named(_, named) => (named, true),
    };
    let fits = |m: &&Member| named.contains(&m.name) || (may_be_unlisted && m.role == Role::Init && m.slots == count);
    // A sidecar keeps its ids to itself, so where one is named nothing else is.
    let early = members.iter().filter(|m| m.role == Role::Init).filter(fits);
    let rest = members.iter().filter(|m| m.role != Role::Init).filter(fits);
    let not_done = |m: &&Member| !seen.main_made && !seen.done.contains(&m.name);
    early
        .clone()
        .find(not_done)
        .or_else(|| rest.clone().next())
        // All have ended well and no main container has these ids: the kubelet runs one of them again.
        .or_else(|| early.clone().next())
        .map(|m| m.name.clone())
        .ok_or_else(|| Unclear::NoContainer(vec![format!("{count} slots")]))
}

/// Reads the kubelet's checkpoint and keeps what concerns `resource`. An unknown shape is `None`: the API remains.
pub fn read_checkpoint(text: &str, resource: &str) -> Option<Vec<Entry>> {
    let root: serde_json::Value = serde_json::from_str(text).ok()?;
    let lines = root.get("Data")?.get("PodDeviceEntries")?;
    if lines.is_null() {
        return Some(Vec::new());
    }
    let mut entries = Vec::new();
    for line in lines.as_array()? {
        if line.get("ResourceName")?.as_str()? != resource {
            continue;
        }
        let mut ids = BTreeSet::new();
        match line.get("DeviceIDs")? {
            // By NUMA node, since 1.20.
            serde_json::Value::Object(nodes) => {
                for list in nodes.values().filter_map(|l| l.as_array()) {
                    ids.extend(list.iter().filter_map(|id| id.as_str().map(str::to_owned)));
                }
            }
            serde_json::Value::Array(list) => ids.extend(list.iter().filter_map(|id| id.as_str().map(str::to_owned))),
            _ => return None,
        }
        entries.push(Entry {
            pod: line.get("PodUID")?.as_str()?.into(),
            container: line.get("ContainerName")?.as_str()?.into(),
            ids,
        });
    }
    Some(entries)
}

#[cfg(test)]
mod tests;
