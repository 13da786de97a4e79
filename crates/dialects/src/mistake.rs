//! What is wrong with a manifest: where, what was written, why it cannot be, and what to write instead.

use std::fmt;

use divvy_core::ask::Dialect;
use serde::Serialize;

/// Where in a manifest something is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Field {
    /// A label of the pod.
    Label(String),
    /// An annotation of the pod; `within` names the place inside it, where its value is itself structured.
    Annotation {
        /// The annotation's name.
        key: String,
        /// The path inside its value, empty for the whole of it.
        within: String,
    },
    /// A resource of a container, in limits or requests.
    Resource {
        /// The container's name.
        container: String,
        /// The resource's name.
        key: String,
    },
    /// An environment variable of a container.
    Env {
        /// The container's name.
        container: String,
        /// The variable's name.
        name: String,
    },
    /// Another field, by its path.
    Spec(String),
}

impl Field {
    pub(crate) fn label(key: &str) -> Field {
        Field::Label(shorten(key, NAME))
    }

    pub(crate) fn annotation(key: &str) -> Field {
        Field::Annotation { key: shorten(key, NAME), within: String::new() }
    }

    pub(crate) fn within(key: &str, within: impl Into<String>) -> Field {
        Field::Annotation { key: shorten(key, NAME), within: shorten(&within.into(), NAME) }
    }

    pub(crate) fn resource(container: &str, key: &str) -> Field {
        Field::Resource { container: shorten(container, NAME), key: shorten(key, NAME) }
    }

    pub(crate) fn env(container: &str, name: &str) -> Field {
        Field::Env { container: shorten(container, NAME), name: shorten(name, NAME) }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Label(key) => write!(f, "label {key}"),
            Field::Annotation { key, within } if within.is_empty() => write!(f, "annotation {key}"),
            Field::Annotation { key, within } => write!(f, "annotation {key}, {within}"),
            Field::Resource { container, key } => write!(f, "container {container}: resource {key}"),
            Field::Env { container, name } => write!(f, "container {container}: env {name}"),
            Field::Spec(path) => write!(f, "{path}"),
        }
    }
}

/// One thing that is wrong with a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mistake {
    /// The dialect whose rule it breaks.
    pub dialect: Dialect,
    /// Where it is written.
    pub field: Field,
    /// What is written there, shortened; absent where something is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Why it cannot be.
    pub problem: String,
    /// What to write instead.
    pub mend: String,
}

impl Mistake {
    /// Something that is missing, or wrong whatever its value.
    pub(crate) fn at(dialect: Dialect, field: Field, problem: impl Into<String>, mend: impl Into<String>) -> Mistake {
        Mistake { dialect, field, value: None, problem: problem.into(), mend: mend.into() }
    }

    /// Something whose value is wrong.
    pub(crate) fn about(
        dialect: Dialect,
        field: Field,
        value: &str,
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) -> Mistake {
        Mistake { dialect, field, value: Some(shorten(value, VALUE)), problem: problem.into(), mend: mend.into() }
    }
}

/// The most letters of a value in a message: an annotation may hold 256 KiB.
const VALUE: usize = 80;
/// The most letters of a name in a message. The longest names that Kubernetes takes, a resource's or an annotation's, have 317. A pod is
/// read before Kubernetes looks at the length of its names, and a name is in every mistake about what bears it.
const NAME: usize = 320;

/// A text as a message can carry it.
fn shorten(value: &str, most: usize) -> String {
    if value.chars().count() <= most {
        return value.to_owned();
    }
    let start: String = value.chars().take(most).collect();
    format!("{start}... ({} characters)", value.chars().count())
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.field)?;
        if let Some(value) = &self.value {
            write!(f, " = {value:?}")?;
        }
        write!(f, ": {}; {}", self.problem, self.mend)
    }
}

/// All mistakes as one message, for an admission reply, an event or a condition. Whoever makes more than a few dozen has a machine write
/// manifests, and is told how many there are.
pub fn sentence(mistakes: &[Mistake]) -> String {
    const MOST: usize = 40;
    match mistakes {
        [] => String::new(),
        [only] => only.to_string(),
        several => {
            let mut text = format!("{} mistakes in this pod's device request:", several.len());
            for (n, mistake) in several.iter().take(MOST).enumerate() {
                text += &format!("\n  {}. {mistake}", n + 1);
            }
            if several.len() > MOST {
                text += &format!("\n  ... and {} more", several.len() - MOST);
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mistake_is_a_sentence_and_several_are_a_list() {
        let one = Mistake::about(Dialect::Native, Field::resource("main", "x/gpu"), "-1", "is negative", "write 1");
        assert_eq!(
            sentence(std::slice::from_ref(&one)),
            "container main: resource x/gpu = \"-1\": is negative; write 1"
        );
        let two = Mistake::at(Dialect::Native, Field::annotation("x/gang-size"), "is missing", "add it");
        assert_eq!(
            sentence(&[one, two]),
            "2 mistakes in this pod's device request:\
             \n  1. container main: resource x/gpu = \"-1\": is negative; write 1\
             \n  2. annotation x/gang-size: is missing; add it"
        );
    }

    #[test]
    fn a_flood_of_mistakes_is_counted_rather_than_told() {
        let one = Mistake::at(Dialect::Native, Field::label("x"), "is wrong", "mend it");
        let text = sentence(&vec![one; 1000]);
        assert!(text.starts_with("1000 mistakes") && text.ends_with("... and 960 more"), "{text}");
    }

    #[test]
    fn a_long_value_is_shortened_at_a_character() {
        let text = "ü".repeat(1000);
        assert_eq!(shorten(&text, VALUE), format!("{}... (1000 characters)", "ü".repeat(80)));
    }
}
