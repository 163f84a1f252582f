//! Paginated lists and their continue tokens.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::api::Api;
use crate::error::{ApiError, FieldError};
use crate::filter::Filter;
use crate::listing::Listing;
use crate::render::Renderer;
use crate::request::Parameters;
use crate::store::{Counting, Object, PageQuery};
use crate::types::Served;

/// Number of objects scanned in one pass if a selector may skip most of them.
const SCAN_OBJECTS: usize = 1000;

/// Where a list continues.
#[derive(Debug, PartialEq, Eq)]
struct Continue {
    /// The version of the first page; `None` for the current state.
    version: Option<u64>,
    after: String,
    /// Number of objects after it, if counted.
    remaining: Option<usize>,
}

impl Continue {
    fn encode(&self) -> String {
        let version = self.version.map_or(json!(-1), Value::from);
        let token = json!({"v": "meta.k8s.io/v1", "rv": version, "start": self.after, "left": self.remaining});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(token: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).ok()?;
        let token: Value = serde_json::from_slice(&bytes).ok()?;
        let after = token["start"].as_str()?.to_owned();
        if token["v"] != "meta.k8s.io/v1" {
            return None;
        }
        let version = match token["rv"].as_i64()? {
            -1 => None,
            version => Some(u64::try_from(version).ok()?),
        };
        let remaining = token["left"].as_u64().and_then(|count| usize::try_from(count).ok());
        Some(Self {
            version,
            after,
            remaining,
        })
    }
}

struct Selected {
    objects: Vec<Arc<Object>>,
    version: u64,
    next: Option<String>,
    remaining: usize,
}

/// Handles a list.
pub(crate) fn list(
    api: &Api,
    renderer: Renderer,
    filter: &Filter,
    parameters: &Parameters,
) -> Result<Listing, ApiError> {
    let limit = parameters.number("limit")?.filter(|limit| *limit > 0);
    // As in Kubernetes, a negative limit means no limit.
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let start = match parameters.text("continue") {
        "" => Continue {
            version: first_version(api, parameters)?,
            after: String::new(),
            remaining: None,
        },
        token => Continue::decode(token).ok_or_else(|| {
            ApiError::bad_request("invalid continue token: continue key is not valid: the token cannot be read")
        })?,
    };
    let found = select(api, &renderer.served, filter, limit, &start)?;
    let mut metadata = json!({"resourceVersion": found.version.to_string()});
    if renderer.served.custom.is_some() {
        // Lists of custom kinds have an empty token at the end, others have none.
        metadata["continue"] = "".into();
    }
    if let Some(next) = found.next {
        let counted = filter.takes_all();
        let token = Continue {
            version: Some(found.version),
            after: next,
            remaining: counted.then_some(found.remaining),
        }
        .encode();
        metadata["continue"] = token.into();
        if counted {
            metadata["remainingItemCount"] = found.remaining.into();
        }
    }
    Ok(Listing::new(renderer, found.objects, &metadata))
}

/// The requested version, if it is not the current one.
fn first_version(api: &Api, parameters: &Parameters) -> Result<Option<u64>, ApiError> {
    let wanted = parameters
        .version()
        .map_err(|error| ApiError::bad_request(format!("invalid resource version: {error}")))?;
    let policy = parameters.text("resourceVersionMatch");
    let field = "resourceVersionMatch";
    let error = match (policy, wanted) {
        ("", _) | ("NotOlderThan", Some(_)) | ("Exact", Some(1..)) => None,
        ("Exact" | "NotOlderThan", None) => {
            let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            Some(FieldError::forbidden(field, detail))
        }
        ("Exact", _) => {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            Some(FieldError::forbidden(field, detail))
        }
        (other, _) => {
            let supported = ["Exact", "NotOlderThan", ""];
            Some(FieldError::not_supported(field, &other.into(), &supported))
        }
    };
    if let Some(error) = error {
        return Err(ApiError::invalid_options("ListOptions", error));
    }
    check_reached(api, wanted)?;
    match wanted {
        Some(version) if policy == "Exact" => Ok(Some(version)),
        _ => Ok(None),
    }
}

/// Refuses a version that the server has not reached.
pub(crate) fn check_reached(api: &Api, wanted: Option<u64>) -> Result<(), ApiError> {
    let current = api.store.version();
    match wanted {
        Some(version) if version > current => Err(ApiError::version_too_large(version, current)),
        _ => Ok(()),
    }
}

fn select(api: &Api, served: &Served, filter: &Filter, limit: usize, start: &Continue) -> Result<Selected, ApiError> {
    let mut found = Selected {
        objects: Vec::new(),
        version: 0,
        next: None,
        remaining: 0,
    };
    let mut at = start.version;
    let mut after = (!start.after.is_empty()).then(|| Arc::<str>::from(start.after.as_str()));
    // Without a selector, or without a limit, one pass is enough.
    let scan = if filter.takes_all() || limit == usize::MAX {
        limit
    } else {
        limit.max(SCAN_OBJECTS)
    };
    // Objects are not counted with a selector, and not counted again after the previous page.
    let counting = match start.remaining {
        _ if !filter.takes_all() || limit == usize::MAX => Counting::No,
        Some(remaining) => Counting::Known(remaining),
        None => Counting::Yes,
    };
    loop {
        let query = PageQuery {
            prefix: filter.prefix(),
            after: after.as_deref(),
            limit: scan,
            at,
            counting,
        };
        let page = api.store.list(&served.table, &query).map_err(|_| expired(start))?;
        found.version = page.version;
        at = Some(page.version);
        for object in page.objects {
            if !filter.takes_all() && !filter.matches(served, &object) {
                continue;
            }
            if found.objects.len() == limit {
                found.next = found.objects.last().map(|last| last.key().to_string());
                return Ok(found);
            }
            found.objects.push(object);
        }
        match page.next {
            Some(next) if found.objects.len() < limit => after = Some(next),
            next => {
                found.next = next.map(|_| {
                    found
                        .objects
                        .last()
                        .map(|last| last.key().to_string())
                        .unwrap_or_default()
                });
                found.remaining = page.remaining;
                return Ok(found);
            }
        }
    }
}

fn expired(start: &Continue) -> ApiError {
    if start.after.is_empty() {
        return ApiError::expired("The resourceVersion for the provided list is too old.");
    }
    let token = Continue {
        version: None,
        after: start.after.clone(),
        remaining: None,
    }
    .encode();
    ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    )
    .with_continue(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_place() {
        for version in [None, Some(17)] {
            let token = Continue {
                version,
                after: "ns/pod-1".into(),
                remaining: version.map(|_| 3),
            };
            assert_eq!(Continue::decode(&token.encode()), Some(token));
        }
        for bad in ["", "x", "e30", "!!!"] {
            assert_eq!(Continue::decode(bad), None, "{bad}");
        }
    }
}
