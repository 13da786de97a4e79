//! The page: a few files in the binary, served as they are.

/// A file of the page.
pub(crate) struct Asset {
    pub(crate) path: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) body: &'static str,
}

/// All of them.
pub(crate) const ALL: &[Asset] = &[
    Asset { path: "/", kind: "text/html; charset=utf-8", body: include_str!("../web/index.html") },
    Asset { path: "/style.css", kind: "text/css; charset=utf-8", body: include_str!("../web/style.css") },
    Asset { path: "/main.js", kind: JS, body: include_str!("../web/main.js") },
    Asset { path: "/map.js", kind: JS, body: include_str!("../web/map.js") },
    Asset { path: "/chart.js", kind: JS, body: include_str!("../web/chart.js") },
    Asset { path: "/panels.js", kind: JS, body: include_str!("../web/panels.js") },
    Asset { path: "/icon.svg", kind: "image/svg+xml", body: include_str!("../web/icon.svg") },
];

const JS: &str = "text/javascript; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_asks_nobody_else_for_anything() {
        let size: usize = ALL.iter().map(|asset| asset.body.len()).sum();
        assert!(size < 300 * 1024, "{size} bytes");
        for asset in ALL {
            for outside in ["http://", "https://", "@import", "//cdn"] {
                let namespace = asset.body.replace("http://www.w3.org/2000/svg", "");
                assert!(!namespace.contains(outside), "{} names {outside}", asset.path);
            }
        }
    }
}
