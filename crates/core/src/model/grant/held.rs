//! What a pod holds, by its annotations. The only reader of them: scheduler, agents, budgets and command line ask here, so that all
//! of them count the same.
//!
//! ```text
//! divvy.dev/grant           what the pod was granted when it was bound: devices, roles, isolation, and the first amounts
//! divvy.dev/grant-override  other amounts that somebody wishes: counts for nothing
//! divvy.dev/grant-admitted  other amounts that the scheduler has admitted: counts instead of the first ones
//! ```

use std::collections::BTreeSet;

use serde_json::Value;

use crate::model::grant::{Grant, Slice};
use crate::model::time::Time;
use crate::model::units::{Bytes, Share};

/// What a pod holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// What it was granted when it was bound.
    pub granted: Grant,
    /// Amounts that were admitted later.
    pub admitted: Option<Admitted>,
    /// Why the annotation with the later amounts is not followed.
    pub ignored: Option<String>,
}

/// Amounts that were admitted after a pod was bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The grant as it was given, with these amounts.
    pub grant: Grant,
    /// Since when.
    pub at: Time,
}

impl Held {
    /// What counts now.
    pub fn now(&self) -> &Grant {
        self.admitted.as_ref().map_or(&self.granted, |admitted| &admitted.grant)
    }
}

/// What a pod holds, from its grant and the amounts that were admitted since. Such amounts that cannot be read, or that would change
/// anything but amounts, leave the grant as it was given. An error says why the grant itself cannot be read.
pub fn held(grant: &str, admitted: Option<&str>) -> Result<Held, String> {
    let granted = read(grant)?;
    let (admitted, ignored) = match admitted.map(|text| admit(&granted, text)) {
        None => (None, None),
        Some(Ok(admitted)) => (Some(admitted), None),
        Some(Err(why)) => (None, Some(why)),
    };
    Ok(Held { granted, admitted, ignored })
}

/// The amounts that a pod is to have next, where they are others than it has: those that somebody wishes, or, where such a wish was
/// taken back, those it was granted first. An error says why the wish cannot be followed, whatever else there is on the cards.
pub fn wished(held: &Held, wish: Option<&str>) -> Option<Result<Grant, String>> {
    let next = match wish {
        Some(text) => match read(text).and_then(|wish| resized(&held.granted, &wish)) {
            Ok(next) => next,
            Err(why) => return Some(Err(why)),
        },
        None => held.granted.clone(),
    };
    (next != *held.now()).then_some(Ok(next))
}

/// A grant with the amounts of another, which may differ from it in nothing else.
pub fn resized(granted: &Grant, amounts: &Grant) -> Result<Grant, String> {
    let others = others(granted, amounts);
    if !others.is_empty() {
        return Err(format!(
            "would change {}: only memory, memoryLimit, share and shareLimit can change while a pod holds its grant",
            others.into_iter().collect::<Vec<_>>().join(", ")
        ));
    }
    let mut next = granted.clone();
    let to = next.containers.iter_mut().flat_map(|container| &mut container.slices);
    for (slice, new) in to.zip(slices(amounts)) {
        (slice.memory, slice.memory_limit) = (new.memory, new.memory_limit);
        (slice.share, slice.share_limit) = (new.share, new.share_limit);
    }
    next.check()?;
    for (was, is) in slices(granted).zip(slices(&next)) {
        if !was.is_resizable() && was != is {
            return Err(format!("would change the amounts of {}, which is held alone, or cut by hardware", was.device));
        }
        if is.share_limit > Share::WHOLE && is.share_limit > was.share_limit {
            return Err(format!("has a limit of {} of the time of {}: a device has 1", is.share_limit, is.device));
        }
    }
    Ok(next)
}

/// The annotation that says that a grant with these amounts counts from a moment on.
pub fn admission(grant: &Grant, at: Time) -> String {
    serde_json::to_string(&Grant { at: at.0, ..grant.clone() }).unwrap_or_default()
}

fn admit(granted: &Grant, text: &str) -> Result<Admitted, String> {
    let amounts = read(text)?;
    let at = Time(amounts.at.max(granted.at));
    Ok(Admitted { grant: resized(granted, &amounts)?, at })
}

fn read(text: &str) -> Result<Grant, String> {
    serde_json::from_str(text).map_err(|e| format!("cannot be read: {e}"))
}

fn slices(grant: &Grant) -> impl Iterator<Item = &Slice> {
    grant.containers.iter().flat_map(|container| &container.slices)
}

/// Everything but amounts in which two grants differ, by the names the annotation has for it.
fn others(granted: &Grant, amounts: &Grant) -> BTreeSet<String> {
    let (was, is) = (blank(granted), blank(amounts));
    let mut paths = BTreeSet::new();
    if was != is {
        let text = |grant: &Grant| serde_json::to_value(grant).unwrap_or_default();
        differences(&text(&was), &text(&is), "", &mut paths);
    }
    paths
}

/// A grant without amounts, and without its moment: that is when its amounts were chosen.
fn blank(grant: &Grant) -> Grant {
    let mut blank = Grant { at: 0, ..grant.clone() };
    for slice in blank.containers.iter_mut().flat_map(|container| &mut container.slices) {
        (slice.memory, slice.memory_limit) = (Bytes::ZERO, Bytes::ZERO);
        (slice.share, slice.share_limit) = (Share::ZERO, Share::ZERO);
    }
    blank
}

fn differences(was: &Value, is: &Value, path: &str, paths: &mut BTreeSet<String>) {
    match (was, is) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                differences(a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null), &path, paths);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(a, b, &format!("{path}[{index}]"), paths);
            }
        }
        _ if was == is => {}
        _ => {
            paths.insert(path.to_owned());
        }
    }
}

#[cfg(test)]
mod tests;
