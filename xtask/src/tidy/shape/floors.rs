//! Rooms that are drawn as floors: a room uses the rooms below it and no other.
//!
//! A crate's first file draws them in its documentation, after the line [`HEADING`]: one room in each line, the highest first.

use std::collections::BTreeMap;

use super::circles::{Uses, uses};
use crate::tidy::{File, none, rust_files};

/// The line before a drawing.
const HEADING: &str = "//! A room uses the rooms below it and no other:";

#[test]
fn a_room_uses_the_rooms_below_it_and_no_other() {
    let drawings = drawings(rust_files());
    assert!(!drawings.is_empty(), "no file has the line '{HEADING}'");
    none(
        &broken(&drawings, &uses(rust_files())),
        "Move what the lower room needs to it, or draw the rooms as they are.",
    );
}

/// Folder -> its rooms as its first file draws them, the highest first.
fn drawings<'a>(files: impl Iterator<Item = &'a File>) -> BTreeMap<String, Vec<String>> {
    let drawn = |file: &'a File| {
        let (_, after) = file.text.split_once(HEADING)?;
        let (_, block) = after.split_once("```text\n")?;
        let (block, _) = block.split_once("//! ```")?;
        let first_word = |line: &str| line.trim_start_matches("//!").split_whitespace().next().map(str::to_owned);
        let folder = file.path.trim_end_matches(".rs").trim_end_matches("/lib").trim_end_matches("/main");
        Some((folder.to_owned(), block.lines().filter_map(first_word).collect()))
    };
    files.filter(|file| !file.path.starts_with("xtask/")).filter_map(drawn).collect()
}

/// Uses that go up, rooms that are drawn and are not there, and folders that are there and are not drawn.
fn broken(drawings: &BTreeMap<String, Vec<String>>, uses: &Uses) -> Vec<String> {
    let mut broken = Vec::new();
    for (folder, rooms) in drawings {
        let floor = |room: &String| rooms.iter().position(|drawn| drawn == room);
        let neighbours = uses.get(folder);
        for (from, to, place) in
            neighbours.into_iter().flatten().flat_map(|(from, to)| to.iter().map(move |(to, place)| (from, to, place)))
        {
            if let (Some(from), Some(to)) = (floor(from), floor(to))
                && to < from
            {
                broken.push(format!("    {place}"));
            }
        }
        for room in rooms {
            let known = neighbours
                .is_some_and(|uses| uses.contains_key(room) || uses.values().any(|used| used.contains_key(room)));
            if !known {
                broken.push(format!("{folder} draws a room {room} that nothing uses and that uses nothing"));
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_that_goes_up_is_found() {
        let drawing =
            format!("{HEADING}\n//!\n//! ```text\n//! a   the roof\n//! b   the cellar\n//! ```\nmod a;\nmod b;\n");
        let found = |a: &str, b: &str| {
            let files = [("lib.rs", drawing.as_str()), ("a.rs", a), ("b.rs", b)];
            let files = files.map(|(path, text)| File::new(&format!("c/src/{path}"), text));
            broken(&drawings(files.iter()), &uses(files.iter()))
        };
        assert_eq!(found("use crate::b::B;", ""), [""; 0]);
        assert_eq!(found("", "use crate::a::A;"), ["    b uses a: c/src/b.rs:1"]);
        let lost = |room| format!("c/src draws a room {room} that nothing uses and that uses nothing");
        assert_eq!(found("", ""), [lost("a"), lost("b")]);
    }
}
