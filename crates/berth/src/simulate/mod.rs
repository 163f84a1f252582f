//! `berth simulate`: reads a cluster and a scenario, lets [`berth_cluster::simulation`] run them in virtual time, and
//! prints the outcome.

mod html;
mod load;
pub(crate) mod pending;
mod playing;
pub mod scenario;
mod subject;
pub(crate) mod table;

pub use html::render as render_html;
pub(crate) use load::{How, learned_classes, prepare, serve_all};
pub use load::{LoadError, Loaded, load};
pub use pending::examined;
pub use playing::play_recorded;
pub use subject::Subject;
pub use table::render;
