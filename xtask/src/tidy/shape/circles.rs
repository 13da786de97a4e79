//! No circles between the files of a folder: what a file uses can be read before it.
//!
//! A file and the folder of its name are one thing here: `a.rs` may use `a/b.rs`, and that `a.rs`. Two neighbours, each with all that is
//! below it, may not use each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::lists::List;
use crate::tidy::source::{bare, paths, shipped};
use crate::tidy::{File, none, rust_files};

/// A module by the names that lead to it from its crate's root.
type Module = Vec<String>;
/// Folder -> neighbour -> what it uses, with one place where it does.
pub(super) type Uses = BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>>;

#[test]
fn neighbours_use_each_other_one_way_but_for_those_that_are_listed() {
    let list = List::read("circles");
    let mut stale: BTreeSet<&str> = list.entries().map(|(circle, _)| circle).collect();
    let mut broken = Vec::new();
    for circle in circles(rust_files()) {
        // A circle that lost a file is still the one that is listed.
        let known = list.entries().find(|(listed, _)| circle.is_within(listed));
        match known {
            Some((listed, _)) => _ = stale.remove(listed),
            None => broken.push(format!("{}:\n{}", circle.name(), circle.ties.join("\n"))),
        }
    }
    broken
        .extend(stale.iter().map(|listed| format!("{listed} is listed and is no circle any more: take the line out")));
    none(&broken, "Move what both need below them, or list the circle in xtask/tidy/circles.txt with the reason.");
}

struct Circle {
    folder: String,
    members: BTreeSet<String>,
    /// Which member uses which, and where.
    ties: Vec<String>,
}

impl Circle {
    fn name(&self) -> String {
        format!("{}/{{{}}}", self.folder, self.members.iter().cloned().collect::<Vec<_>>().join(","))
    }

    /// Whether `listed`, `folder/{a,b,c}`, has all its members.
    fn is_within(&self, listed: &str) -> bool {
        let Some((folder, members)) = listed.trim_end_matches('}').split_once("/{") else { return false };
        folder == self.folder && self.members.iter().all(|member| members.split(',').any(|listed| listed == member))
    }
}

/// The sources of one library or program: module -> file.
struct Tree<'a> {
    /// The folder of its first file.
    folder: &'a str,
    files: BTreeMap<Module, &'a File>,
    /// What names a module's `use` lines give to what is elsewhere.
    aliases: BTreeMap<Module, BTreeMap<String, Module>>,
}

fn circles<'a>(files: impl Iterator<Item = &'a File>) -> Vec<Circle> {
    uses(files).iter().flat_map(|(folder, uses)| of_folder(folder, uses)).collect()
}

/// What the neighbours of each folder use of each other.
pub(super) fn uses<'a>(files: impl Iterator<Item = &'a File>) -> Uses {
    let mut uses = Uses::new();
    for tree in trees(files) {
        tree.uses(&mut uses);
    }
    uses
}

fn trees<'a>(files: impl Iterator<Item = &'a File>) -> Vec<Tree<'a>> {
    let mut folders: BTreeMap<&'a str, BTreeMap<Module, &'a File>> = BTreeMap::new();
    for file in files.filter(|file| !file.is_test() && !file.is_generated()) {
        let Some((package, path)) = file.path.split_once("/src/") else { continue };
        let path = path.trim_end_matches(".rs");
        let module: Module = match path {
            "lib" | "main" => Vec::new(),
            path => path.split('/').filter(|part| *part != "mod").map(str::to_owned).collect(),
        };
        folders.entry(&file.path[..package.len() + "/src".len()]).or_default().insert(module, file);
    }
    folders.into_iter().map(|(folder, files)| Tree::new(folder, files)).collect()
}

impl<'a> Tree<'a> {
    fn new(folder: &'a str, files: BTreeMap<Module, &'a File>) -> Tree<'a> {
        let mut tree = Tree { folder, files, aliases: BTreeMap::new() };
        for (module, file) in &tree.files {
            let given = paths::imported(&bare(shipped(&file.text)));
            let given = given.into_iter().filter_map(|(name, path)| Some((name, tree.absolute(module, &path)?)));
            let given = given.collect();
            tree.aliases.insert(module.clone(), given);
        }
        tree
    }

    /// `path`, as it is written in `module`, from the root; nothing for what other crates have.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let mut at = module.clone();
        let mut rest = path;
        loop {
            match rest.first().map(String::as_str) {
                Some("crate") => at.clear(),
                Some("self") => {}
                Some("super") => _ = at.pop()?,
                Some(name) if rest.len() == path.len() => {
                    // Without such a word it begins with a module of this one, or is another crate's.
                    let mut inner = at.clone();
                    inner.push(name.to_owned());
                    return self.files.contains_key(&inner).then(|| [at, rest.to_vec()].concat());
                }
                _ => return Some([at, rest.to_vec()].concat()),
            }
            rest = &rest[1..];
        }
    }

    /// The module that has what is at the absolute `path`.
    fn owner(&self, path: &Module) -> Module {
        let mut path = path.clone();
        // A name may be handed on a few times; the bound is for names that are handed on in a circle.
        for _ in 0..8 {
            let mut at = (0..=path.len()).rev().map(|n| path[..n].to_vec()).find(|part| self.files.contains_key(part));
            let Some(module) = at.take() else { return Vec::new() };
            let alias = path.get(module.len()).and_then(|name| self.aliases.get(&module)?.get(name));
            match alias {
                Some(alias) => path = [alias.clone(), path[module.len() + 1..].to_vec()].concat(),
                None => return module,
            }
        }
        path
    }

    /// Adds what neighbours in its folders use of each other.
    fn uses(&self, uses: &mut Uses) {
        for (module, file) in &self.files {
            for (line, path) in paths::used(&bare(shipped(&file.text))) {
                let Some(used) = self.absolute(module, &path).map(|path| self.owner(&path)) else { continue };
                let common = module.iter().zip(&used).take_while(|(a, b)| a == b).count();
                let (Some(from), Some(to)) = (module.get(common), used.get(common)) else { continue };
                let folder = [&[self.folder.to_owned()], &module[..common]].concat().join("/");
                let place = format!("{from} uses {to}: {}:{line}", file.path);
                let neighbours = uses.entry(folder).or_default();
                neighbours.entry(from.clone()).or_default().entry(to.clone()).or_insert(place);
            }
        }
    }
}

/// Groups of neighbours that reach each other.
fn of_folder(folder: &str, uses: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<Circle> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = uses.keys().map(|from| (from, reach(from, uses))).collect();
    let together =
        |a: &String, b: &String| reached[a].contains(b) && reached.get(b).is_some_and(|reached| reached.contains(a));
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for first in uses.keys().filter(|first| together(first, first)) {
        let members: BTreeSet<String> =
            reached[first].iter().filter(|other| together(first, other)).map(|m| (*m).clone()).collect();
        if !seen.insert(members.clone()) {
            continue;
        }
        let ties = members.iter().flat_map(|from| uses[from].iter().filter(|(to, _)| members.contains(*to)));
        let ties = ties.map(|(_, place)| format!("    {place}")).collect();
        found.push(Circle { folder: folder.to_owned(), members, ties });
    }
    found
}

fn reach<'a>(from: &'a String, uses: &'a BTreeMap<String, BTreeMap<String, String>>) -> BTreeSet<&'a String> {
    let (mut reached, mut queue) = (BTreeSet::new(), vec![from]);
    while let Some(next) = queue.pop() {
        queue.extend(uses.get(next).into_iter().flat_map(BTreeMap::keys).filter(|to| reached.insert(*to)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = files.iter().map(|(path, text)| File::new(&format!("c/src/{path}"), text)).collect();
        circles(files.iter()).iter().map(Circle::name).collect()
    }

    #[test]
    fn neighbours_that_use_each_other_are_found() {
        assert_eq!(
            found(&[("lib.rs", ""), ("a.rs", "use crate::b::B;"), ("b.rs", "fn f() { super::a::f() }")]),
            ["c/src/{a,b}"]
        );
        assert_eq!(found(&[("lib.rs", ""), ("a.rs", "use crate::b::B;"), ("b.rs", "// use crate::a;")]), [""; 0]);
    }

    #[test]
    fn what_is_below_a_neighbour_belongs_to_it() {
        let files =
            [("lib.rs", ""), ("a.rs", "mod d; use d::D;"), ("a/d.rs", "use super::A; use crate::b::B;"), ("b.rs", "")];
        assert_eq!(found(&files), [""; 0], "a and a/d are one thing");
        let files = [files[0], files[1], files[2], ("b.rs", "use crate::a::A;")];
        assert_eq!(found(&files), ["c/src/{a,b}"]);
    }

    #[test]
    fn names_that_are_handed_on_lead_to_their_owner() {
        let root = ("lib.rs", "pub use b::{self as c, B};");
        assert_eq!(found(&[root, ("a.rs", "use crate::B;"), ("b.rs", "use crate::a;")]), ["c/src/{a,b}"]);
        assert_eq!(found(&[root, ("a.rs", "use crate::c::X;"), ("b.rs", "use crate::a;")]), ["c/src/{a,b}"]);
    }

    #[test]
    fn a_circle_is_within_a_larger_one_that_is_listed() {
        let files = [File::new("c/src/a.rs", "use super::b;"), File::new("c/src/b.rs", "use crate::a::X;")];
        let circle = circles(files.iter()).remove(0);
        assert!(circle.is_within("c/src/{a,b,d}") && circle.is_within("c/src/{a,b}"));
        assert!(!circle.is_within("c/src/{a,d}") && !circle.is_within("e/src/{a,b}"));
    }
}
