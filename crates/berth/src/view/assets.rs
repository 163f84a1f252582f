//! The files of the page. They are part of the program, hold no data, and need nothing from anywhere else.

use crate::page::{LOOK, MODULES};

/// A file: its path, its type and its text.
#[derive(Clone, Copy)]
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

const SCRIPTS: &[Asset] = scripts!("feed.js", "main.js", "whatif.js");

/// The file at a path.
pub(super) fn find(path: &str) -> Option<Asset> {
    let own = PAGES.iter().chain(SCRIPTS).find(|asset| asset.path == path).copied();
    own.or_else(|| {
        let name = path.strip_prefix('/')?;
        let module = MODULES.iter().find(|module| module.name == name)?;
        Some(Asset {
            path: module.name,
            content_type: SCRIPT,
            text: module.text,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{PAGES, SCRIPTS, find};
    use crate::page::MODULES;

    #[test]
    fn the_page_asks_for_nothing_that_is_not_here() {
        let own = PAGES.iter().chain(SCRIPTS).map(|asset| (asset.path, asset.text));
        let shared = MODULES.iter().map(|module| (module.name, module.text));
        for (path, text) in own.chain(shared) {
            let mut rest = text;
            for begin in ["from \"./", "src=\"/", "href=\"/"] {
                while let Some((_, after)) = rest.split_once(begin) {
                    let named = after.split('"').next().unwrap_or_default();
                    assert!(find(&format!("/{named}")).is_some(), "{path} names {named}");
                    rest = after;
                }
                rest = text;
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
                let allowed = foreign == "http:" && text.contains("http://www.w3.org/2000/svg");
                assert!(allowed || !text.contains(foreign), "{path} holds {foreign}");
            }
        }
    }
}
