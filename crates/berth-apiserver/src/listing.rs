//! A list response that is rendered as fast as the client reads.
//!
//! A list of a large cluster is hundreds of megabytes as bytes, and its objects are in the store anyway. A client that
//! requests lists and does not read them holds one chunk of each, and the requested versions of the objects.

use std::sync::Arc;
use std::vec;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;

use crate::render::{LIST_TAIL, Renderer};
use crate::store::Object;

/// Approximate chunk size of lists: large enough that the number of chunks does not matter, small enough that rendering
/// one does not block.
const PIECE_BYTES: usize = 64 << 10;

/// The chunks of a list.
pub(crate) struct Listing {
    renderer: Renderer,
    objects: vec::IntoIter<Arc<Object>>,
    /// The start of the next chunk. `None` after the last one.
    begun: Option<BytesMut>,
}

impl Listing {
    /// `metadata` is that of the list.
    pub(crate) fn new(renderer: Renderer, objects: Vec<Arc<Object>>, metadata: &Value) -> Self {
        let head = renderer.list_head(metadata);
        Self {
            renderer,
            objects: objects.into_iter(),
            begun: Some(BytesMut::from(head.as_bytes())),
        }
    }

    /// Whether the last chunk was rendered.
    pub(crate) fn is_over(&self) -> bool {
        self.begun.is_none()
    }
}

impl Iterator for Listing {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = self.begun.take()?;
        while let Some(object) = self.objects.next() {
            self.renderer.list_item(&object, &mut piece);
            if self.objects.len() > 0 {
                piece.put_u8(b',');
            }
            if piece.len() >= PIECE_BYTES {
                self.begun = Some(BytesMut::new());
                return Some(piece.freeze());
            }
        }
        piece.put_slice(LIST_TAIL.as_bytes());
        Some(piece.freeze())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::Form;
    use crate::table::IncludeObject;
    use crate::types::Types;

    fn objects(count: usize) -> Vec<Arc<Object>> {
        let text = "x".repeat(PIECE_BYTES / 4);
        let object = |number: usize| {
            let name = format!("map-{number}");
            let value = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"text": text},
                "metadata": {"name": name, "namespace": "default", "annotations": {"text": text}}});
            Arc::new(Object::encode(name.into(), 1, value).unwrap())
        };
        (0..count).map(object).collect()
    }

    fn listing(form: Form, objects: &[Arc<Object>]) -> Listing {
        let types = Types::new(std::iter::empty());
        let renderer = Renderer {
            served: types.by_kind("v1", "ConfigMap").unwrap().clone(),
            form,
            include_object: IncludeObject::Metadata,
            now: jiff::Timestamp::UNIX_EPOCH,
            with_columns: true,
        };
        Listing::new(renderer, objects.to_vec(), &json!({"resourceVersion": "7"}))
    }

    #[test]
    fn a_list_is_rendered_no_further_than_it_is_read() {
        let objects = objects(100);
        for form in [Form::Whole, Form::Metadata, Form::Table] {
            let mut listing = listing(form, &objects);
            let first = listing.next().unwrap();
            assert!(first.len() < 2 * PIECE_BYTES, "{}", first.len());
            let waiting = objects.iter().filter(|object| Arc::strong_count(object) == 2).count();
            assert!(waiting > 90, "{waiting} objects are still to be rendered");
        }
    }

    #[test]
    fn the_pieces_of_a_list_are_the_list() {
        for count in [0, 1, 2, 3, 50] {
            let objects = objects(count);
            for (form, items) in [(Form::Whole, "items"), (Form::Metadata, "items"), (Form::Table, "rows")] {
                let whole: Vec<u8> = listing(form, &objects).flatten().collect();
                let list: Value = serde_json::from_slice(&whole).unwrap();
                assert_eq!(list["metadata"]["resourceVersion"], "7");
                let items = list[items].as_array().unwrap();
                assert_eq!(items.len(), count);
                for (number, item) in items.iter().enumerate() {
                    let object = item.get("object").unwrap_or(item);
                    assert_eq!(object["metadata"]["name"], format!("map-{number}"));
                }
            }
        }
    }
}
