//! The reviews that `kubectl auth` posts. They are answered, never stored.

use crate::kind::Kind;

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// All reviews.
pub const KINDS: &[&Kind] = &[
    &cluster(AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews"),
    &cluster(AUTHENTICATION, "TokenReview", "tokenreviews"),
    &Kind {
        stored: false,
        ..Kind::namespaced(
            AUTHORIZATION,
            "v1",
            "LocalSubjectAccessReview",
            "localsubjectaccessreviews",
        )
    },
    &cluster(AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    &cluster(AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    &cluster(AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews"),
];

const fn cluster(group: &'static str, name: &'static str, plural: &'static str) -> Kind {
    Kind {
        stored: false,
        ..Kind::cluster(group, "v1", name, plural)
    }
}
