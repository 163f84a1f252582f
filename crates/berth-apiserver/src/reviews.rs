//! Reviews: there is one user, who may do everything, and no one else.

use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use crate::error::ApiError;
use crate::meta;
use crate::types::Served;

/// The name of the only user.
const USER: &str = "berth-admin";
/// The group whose members may do everything.
const MASTERS: &str = "system:masters";

/// Responds to a review. `token` is the server's token.
pub(crate) fn answer(served: &Served, mut review: Value, token: &str) -> Result<Value, ApiError> {
    if !review.is_object() {
        review = json!({});
    }
    meta::set(&mut review, &["kind"], served.resource.kind.as_str().into());
    meta::set(&mut review, &["apiVersion"], served.resource.api_version().into());
    let user = json!({"username": USER, "groups": [MASTERS, "system:authenticated"]});
    let status = match served.resource.kind.as_str() {
        "SelfSubjectRulesReview" => json!({"incomplete": false,
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}),
        "SelfSubjectReview" => json!({"userInfo": user}),
        "TokenReview" => match meta::text(&review, &["spec", "token"]) {
            "" => {
                return Err(ApiError::bad_request(
                    "token is required for TokenReview in authentication",
                ));
            }
            given if given.as_bytes().ct_eq(token.as_bytes()).into() => json!({"authenticated": true, "user": user}),
            _ => json!({"user": {}, "error": "invalid bearer token"}),
        },
        "SubjectAccessReview" | "LocalSubjectAccessReview" if !is_the_user(&review) => {
            json!({"allowed": false, "reason": "there is one user here, and this is another"})
        }
        _ => json!({"allowed": true, "reason": "there is one user, who may do everything"}),
    };
    meta::set(&mut review, &["status"], status);
    Ok(review)
}

fn is_the_user(review: &Value) -> bool {
    let groups = meta::items(review, &["spec", "groups"]);
    meta::text(review, &["spec", "user"]) == USER || groups.iter().any(|group| group == MASTERS)
}
