//! Field errors and admission refusals: data that the API server converts to a `Status`.
//!
//! The wording is that of Kubernetes, because people and tools compare it.

use std::fmt;

use serde_json::Value;

/// The kind of error in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Problem {
    /// It must be set.
    Required,
    /// Its value is not allowed.
    Invalid,
    /// Its value has the wrong type.
    TypeInvalid,
    /// Its value is not one of the supported ones.
    NotSupported,
    /// It must not be set or changed.
    Forbidden,
    /// Its value must be unique.
    Duplicate,
    /// Its value refers to an object that does not exist.
    NotFound,
    /// Its value is longer than the kind allows.
    TooLong,
    /// Its value is longer than the schema of a custom kind allows.
    TooLongForSchema,
    /// The list has too many elements.
    TooMany,
}

impl Problem {
    /// The `reason` of a cause in a `Status`, for example `FieldValueRequired`.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid | Self::TooLongForSchema => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::TooLong | Self::TooLongForSchema => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

/// One error in one field. It displays as `spec.size: Required value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The field, for example `spec.sizes[0]`.
    pub field: String,
    /// The kind of error.
    pub problem: Problem,
    /// The value as displayed, if it is part of the message.
    pub value: Option<String>,
    /// What is allowed; empty if the problem is self-explanatory.
    pub detail: String,
}

impl FieldError {
    fn new(field: impl Into<String>, problem: Problem, value: Option<String>, detail: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem,
            value,
            detail: detail.into(),
        }
    }

    /// The field must be set.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, Problem::Required, None, detail)
    }

    /// The field's value is not allowed.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::invalid_text(field, &value.to_string(), detail)
    }

    /// The field's value, which is not shown as JSON, is not allowed.
    pub fn invalid_text(field: impl Into<String>, value: &str, detail: &str) -> Self {
        Self::new(field, Problem::Invalid, Some(value.to_owned()), detail)
    }

    /// The field's value is not what decisions expect. The problem describes what was found and what is valid.
    pub(crate) fn unreadable(field: impl Into<String>, problem: &str) -> Self {
        Self::new(field, Problem::Invalid, None, problem)
    }

    /// The field's value has the wrong type, or does not have the format that the schema requires.
    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(field, Problem::TypeInvalid, Some(value.to_string()), detail)
    }

    /// The field's value is not one of the supported ones.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        Self::not_supported_text(field, &value.to_string(), supported)
    }

    /// The field's value, which is not shown as JSON, is not one of the supported ones.
    pub fn not_supported_text(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        let supported: Vec<_> = supported.iter().map(|s| format!("{s:?}")).collect();
        Self::not_among(field, value, &supported)
    }

    /// The field's value is not among those that a schema lists, all shown as JSON.
    pub(crate) fn not_among(field: impl Into<String>, value: &str, supported: &[String]) -> Self {
        let detail = format!("supported values: {}", supported.join(", "));
        Self::new(field, Problem::NotSupported, Some(value.to_owned()), detail)
    }

    /// The field must not be set or changed.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, Problem::Forbidden, None, detail)
    }

    /// The value must be unique.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::duplicate_text(field, &value.to_string())
    }

    /// The value, which is not shown as JSON, must be unique.
    pub fn duplicate_text(field: impl Into<String>, value: &str) -> Self {
        Self::new(field, Problem::Duplicate, Some(value.to_owned()), "")
    }

    /// The value refers to an object that does not exist.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new(field, Problem::NotFound, Some(value.to_string()), "")
    }

    /// The value is longer than allowed.
    pub fn too_long(field: impl Into<String>, bytes_max: usize) -> Self {
        let detail = format!("may not be more than {bytes_max} bytes");
        Self::new(field, Problem::TooLong, None, detail)
    }

    /// The value is longer than the schema of a custom kind allows.
    pub(crate) fn too_long_for_schema(field: impl Into<String>, length_max: u64) -> Self {
        let detail = format!("may not be more than {length_max} bytes");
        Self::new(field, Problem::TooLongForSchema, None, detail)
    }

    /// The list has more elements than allowed.
    pub(crate) fn too_many(field: impl Into<String>, count: u64, count_max: u64) -> Self {
        let items = if count_max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {count_max} {items}");
        Self::new(field, Problem::TooMany, Some(count.to_string()), detail)
    }

    /// This error for another field.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = field.into();
        self
    }

    /// The message without the field, for example `Invalid value: 3: must be even`.
    #[must_use]
    pub fn message(&self) -> String {
        let mut message = self.problem.words().to_owned();
        let parts = self.value.iter().chain(Some(&self.detail));
        for part in parts.filter(|part| !part.is_empty()) {
            message.push_str(": ");
            message.push_str(part);
        }
        message
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

/// Why admission refuses an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A pod refers to a priority class that does not exist.
    #[error("no PriorityClass with name {class} was found")]
    UnknownPriorityClass {
        /// The class.
        class: String,
    },
    /// A pod sets a priority other than that of its class.
    #[error(
        "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
         computed {computed} from the given PriorityClass name"
    )]
    OtherPriority {
        /// The pod's priority.
        given: i64,
        /// The class's priority.
        computed: i64,
    },
    /// A pod refers to a runtime class that does not exist.
    #[error("pod rejected: RuntimeClass {class:?} not found")]
    UnknownRuntimeClass {
        /// The class.
        class: String,
    },
    /// A pod sets an overhead other than that of its runtime class.
    #[error("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")]
    OtherOverhead,
    /// A pod sets an overhead without a runtime class that defines one.
    #[error("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")]
    OverheadWithoutClass,
    /// A pod and its runtime class select different nodes.
    #[error(
        "conflict: runtimeClass.scheduling.nodeSelector[{label}] = {}; pod.spec.nodeSelector[{label}] = {}",
        .values[0], .values[1]
    )]
    OtherNodes {
        /// The label.
        label: String,
        /// Its value in the class and in the pod.
        values: Box<[String; 2]>,
    },
    /// An object violates the limits of its namespace.
    #[error("{}", one_or_list(.0))]
    BeyondLimits(Vec<String>),
    /// A claim requests expansion, and its class does not allow it.
    #[error(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support \
         resize"
    )]
    NotExpandable,
    /// The namespace of the object does not exist.
    #[error("namespaces {namespace:?} not found")]
    NamespaceMissing {
        /// The namespace.
        namespace: String,
    },
    /// The namespace of the object is being deleted.
    #[error("unable to create new content in namespace {namespace} because it is being terminated")]
    NamespaceTerminating {
        /// The namespace.
        namespace: String,
    },
    /// Fields request what another object already has.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Invalid(Vec<FieldError>),
}

/// One message as it is, several in brackets without duplicates.
fn one_or_list(messages: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for message in messages {
        if !distinct.contains(&message.as_str()) {
            distinct.push(message);
        }
    }
    match distinct.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}
