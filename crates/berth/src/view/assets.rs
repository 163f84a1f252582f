//! The files of the page. They are part of the program, hold no data, and need nothing from anywhere else.

use crate::page::LOOK;

/// A file: its path, its type and its text.
pub(super) struct Asset {
    path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! scripts {
    ($($name:literal),* $(,)?) => {
        &[$(Asset { path: concat!("/", $name), content_type: SCRIPT, text: include_str!(concat!("page/", $name)) },)*]
    };
}

const PAGES: &[Asset] = &[
    Asset {
        path: "/",
        content_type: "text/html; charset=utf-8",
        text: include_str!("page/index.html"),
    },
    Asset {
        path: "/look.css",
        content_type: STYLE,
        text: LOOK,
    },
    Asset {
        path: "/view.css",
        content_type: STYLE,
        text: include_str!("page/view.css"),
    },
];

const SCRIPTS: &[Asset] = scripts!(
    "details.js",
    "dom.js",
    "explain.js",
    "feed.js",
    "format.js",
    "main.js",
    "map.js",
    "model.js",
    "timeline.js",
    "waiting.js",
    "whatif.js",
);

/// The file at a path.
pub(super) fn find(path: &str) -> Option<&'static Asset> {
    PAGES.iter().chain(SCRIPTS).find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::{PAGES, SCRIPTS};

    #[test]
    fn the_page_asks_for_nothing_that_is_not_here() {
        let all = || PAGES.iter().chain(SCRIPTS);
        let known: Vec<&str> = all().map(|asset| asset.path).collect();
        for asset in all() {
            let mut rest = asset.text;
            for begin in ["from \"./", "src=\"/", "href=\"/"] {
                while let Some((_, after)) = rest.split_once(begin) {
                    let named = after.split('"').next().unwrap_or_default();
                    assert!(known.contains(&&*format!("/{named}")), "{} names {named}", asset.path);
                    rest = after;
                }
                rest = asset.text;
            }
            for foreign in [
                "http:",
                "https:",
                "url(",
                "@import",
                "innerHTML",
                "eval(",
                " style=\"",
                " onclick=",
            ] {
                let allowed = foreign == "http:" && asset.text.contains("http://www.w3.org/2000/svg");
                assert!(
                    allowed || !asset.text.contains(foreign),
                    "{} holds {foreign}",
                    asset.path
                );
            }
        }
    }
}
