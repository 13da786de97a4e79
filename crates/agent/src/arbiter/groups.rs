//! Cards that some container holds together are decided about together: gates of a gang open and close as one.

use std::collections::{BTreeMap, BTreeSet};

/// Containers that share cards with each other, directly or through others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<T> {
    /// The cards, by identity, sorted.
    pub devices: Vec<String>,
    /// Who is on them.
    pub members: Vec<T>,
}

/// Sorts containers, each with the devices it holds, into groups. One without devices is in none.
pub fn of<T>(containers: impl IntoIterator<Item = (T, Vec<String>)>) -> Vec<Group<T>> {
    let mut groups: BTreeMap<usize, (BTreeSet<String>, Vec<T>)> = BTreeMap::new();
    for (next, (container, devices)) in containers.into_iter().enumerate() {
        if devices.is_empty() {
            continue;
        }
        let mut devices: BTreeSet<String> = devices.into_iter().collect();
        let touched: Vec<usize> =
            groups.iter().filter(|(_, (held, _))| !held.is_disjoint(&devices)).map(|(id, _)| *id).collect();
        let mut members = Vec::new();
        for id in touched {
            if let Some((held, with)) = groups.remove(&id) {
                devices.extend(held);
                members.extend(with);
            }
        }
        members.push(container);
        groups.insert(next, (devices, members));
    }
    groups.into_values().map(|(devices, members)| Group { devices: devices.into_iter().collect(), members }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_grouped_by_the_cards_they_share() {
        let held = |cards: &str| cards.chars().map(String::from).collect::<Vec<_>>();
        let groups = of([("a", held("x")), ("b", held("y")), ("c", held("x")), ("d", held("yz")), ("e", held(""))]);
        let shown: Vec<(String, String)> = groups.iter().map(|g| (g.devices.concat(), g.members.concat())).collect();
        assert_eq!(shown, [("x".into(), "ac".into()), ("yz".into(), "bd".into())]);
        let bridged = of([("a", held("x")), ("b", held("y")), ("c", held("xy"))]);
        assert_eq!(bridged.len(), 1);
        assert_eq!((bridged[0].devices.concat(), bridged[0].members.concat()), ("xy".into(), "abc".into()));
    }
}
