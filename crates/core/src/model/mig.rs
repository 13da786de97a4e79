//! Hardware partitions. A device that can be cut up says how in its attributes, and a partition occupies slots of it; a device that was cut
//! off a card beforehand says of which card it is a part, and is given as it stands.

use crate::model::device::Device;
use crate::model::units::Bytes;

/// The attribute by which a part that was cut off beforehand (a MIG instance) names its card.
pub const PARENT: &str = "parent";

/// The attribute by which such a part says what it is, in the vendor's words (`1g.5gb`).
pub const PROFILE: &str = "mig-profile";

/// How a ready-made part is called whose profile nobody knows: it has a size, but cannot be asked for by name.
const NAMELESS: &str = "mig";

/// The attribute that lists what a card can be cut into: `NAME:MIB:SIZE:START,START,...` joined by `;`, for example
/// `1g.5gb:4864:1:0,1,2,3,4,5,6;2g.10gb:9856:2:0,2,4`.
pub const PROFILES: &str = "mig-profiles";

/// One way to cut a part off a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The vendor's name (`2g.10gb`).
    pub name: String,
    /// The memory of the part.
    pub memory: Bytes,
    /// How many slots it occupies.
    pub size: u32,
    /// Where it may begin.
    pub starts: Vec<u32>,
}

/// What a device can be cut into, smallest memory first. What cannot be read is left out: a device without profiles is not cut.
pub fn profiles(device: &Device) -> Vec<Profile> {
    let Some(text) = device.attributes.get(PROFILES) else { return Vec::new() };
    let mut profiles: Vec<Profile> = text.split(';').filter_map(profile).collect();
    profiles.sort_by(|a, b| (a.memory, &a.name).cmp(&(b.memory, &b.name)));
    profiles
}

fn profile(text: &str) -> Option<Profile> {
    let mut fields = text.trim().split(':');
    let (name, mib, size, starts) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let starts: Option<Vec<u32>> = starts.split(',').map(|s| s.trim().parse().ok().filter(|s| *s < 32)).collect();
    let size: u32 = size.trim().parse().ok().filter(|s| (1..=32).contains(s))?;
    Some(Profile { name: name.to_owned(), memory: Bytes::mib(mib.trim().parse().ok()?), size, starts: starts? })
}

/// The slots from `start` on that a profile occupies, one bit each.
fn mask(start: u32, size: u32) -> u32 {
    (((1u64 << size) - 1) << start) as u32
}

/// The profile of a part that was cut off its card beforehand; absent for a card.
pub fn ready_made(device: &Device) -> Option<&str> {
    device.attributes.get(PARENT)?;
    Some(device.attributes.get(PROFILE).map_or(NAMELESS, String::as_str))
}

/// Has the device partitions of this name, taken or not?
pub fn offers(device: &Device, profile: &str) -> bool {
    match ready_made(device) {
        Some(own) => own == profile,
        None => profiles(device).iter().any(|p| p.name == profile),
    }
}

/// Is a partition, as grants write it (`PROFILE@START`, or `PROFILE` for one that was there before), of this profile?
pub fn is_of(partition: &str, profile: &str) -> bool {
    partition.split_once('@').map_or(partition, |(name, _)| name) == profile
}

/// The slots that a partition named `PROFILE@START` occupies; none if the device knows no such profile. A ready-made part is one slot.
pub fn slots(device: &Device, partition: &str) -> u32 {
    if ready_made(device).is_some() {
        return 1;
    }
    let Some((name, start)) = partition.split_once('@') else { return 0 };
    let Ok(start) = start.parse::<u32>() else { return 0 };
    profiles(device).iter().find(|p| p.name == name && start < 32).map_or(0, |p| mask(start, p.size))
}

/// The smallest partition with so much memory, and of the profile `named` where one is, that still has a place beside `taken` slots: its
/// name and its memory. Small ones (one or three slots of compute) go to the high end so that the low end stays free for large ones.
pub fn choose(device: &Device, need: Bytes, named: Option<&str>, taken: u32) -> Option<(String, Bytes, u32)> {
    let right = |name: &str, memory: Bytes| memory >= need && named.is_none_or(|named| named == name);
    if let Some(name) = ready_made(device) {
        // Who else is on it is in its book: the containers of one pod that run one after another may share it.
        return right(name, device.memory).then(|| (name.to_owned(), device.memory, 1));
    }
    for profile in profiles(device).into_iter().filter(|p| right(&p.name, p.memory)) {
        let mut starts = profile.starts.clone();
        starts.sort_unstable();
        if profile.name.starts_with("1g") || profile.name.starts_with("3g") {
            starts.reverse();
        }
        if let Some(start) = starts.into_iter().find(|start| taken & mask(*start, profile.size) == 0) {
            return Some((format!("{}@{start}", profile.name), profile.memory, mask(start, profile.size)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a100() -> Device {
        let mut device = Device::gpu("GPU-0", 0, "A100", Bytes::mib(40_536));
        device.attributes.insert(
            PROFILES.into(),
            "1g.5gb:4864:1:0,1,2,3,4,5,6;2g.10gb:9856:2:0,2,4;3g.20gb:20096:4:0,4;7g.40gb:40192:8:0".into(),
        );
        device
    }

    #[test]
    fn the_smallest_profile_that_is_large_enough_is_cut_where_there_is_room() {
        let card = a100();
        let (first, memory, taken) = choose(&card, Bytes::mib(8000), None, 0).unwrap();
        assert_eq!((first.as_str(), memory, taken), ("2g.10gb@0", Bytes::mib(9856), 0b11));
        let (second, _, more) = choose(&card, Bytes::mib(8000), None, taken).unwrap();
        assert_eq!((second.as_str(), more), ("2g.10gb@2", 0b1100));
        assert_eq!(slots(&card, &second), more);
        assert_eq!(choose(&card, Bytes::mib(4000), None, taken | more).unwrap().0, "1g.5gb@6");
    }

    #[test]
    fn a_profile_asked_for_by_name_is_cut_and_no_other() {
        let card = a100();
        let by_name = |name: &str, taken: u32| choose(&card, Bytes::ZERO, Some(name), taken).map(|(name, ..)| name);
        assert_eq!(by_name("3g.20gb", 0).as_deref(), Some("3g.20gb@4"));
        assert_eq!(by_name("3g.20gb", 0b1111_0000).as_deref(), Some("3g.20gb@0"));
        assert_eq!(by_name("3g.20gb", 0b0001_0001), None, "others would have room");
        assert_eq!(by_name("4g.20gb", 0), None, "it cannot be cut so");
        assert_eq!(choose(&card, Bytes::mib(20_097), Some("3g.20gb"), 0), None, "too small for what is asked beside");
        assert!(is_of("3g.20gb@4", "3g.20gb") && !is_of("3g.20gb@4", "3g.20g") && !is_of("1g.5gb@6", "3g.20gb"));
    }

    #[test]
    fn a_part_that_is_there_already_is_given_as_it_stands() {
        let mut part = Device::gpu("MIG-0", 0, "A100", Bytes::mib(4864));
        part.attributes.insert(PARENT.into(), "GPU-0".into());
        let whole = Some((NAMELESS.to_owned(), Bytes::mib(4864), 1));
        assert_eq!(choose(&part, Bytes::mib(3000), None, 0), whole, "its size is known, if not its name");
        assert_eq!(choose(&part, Bytes::ZERO, Some("1g.5gb"), 0), None);
        part.attributes.insert(PROFILE.into(), "1g.5gb".into());
        assert_eq!(choose(&part, Bytes::ZERO, Some("1g.5gb"), 0).unwrap().0, "1g.5gb");
        assert_eq!(choose(&part, Bytes::ZERO, Some("2g.10gb"), 0), None);
        assert_eq!(choose(&part, Bytes::mib(4865), None, 0), None);
        assert_eq!(slots(&part, "1g.5gb"), 1);
    }

    #[test]
    fn what_cannot_be_read_is_no_profile() {
        let mut card = a100();
        for text in ["", "x", "1g:a:1:0", "1g:5:99:0", "1g:5:1:77", "1g:5:1:"] {
            card.attributes.insert(PROFILES.into(), text.into());
            assert_eq!(choose(&card, Bytes(1), None, 0), None, "{text}");
        }
    }
}
