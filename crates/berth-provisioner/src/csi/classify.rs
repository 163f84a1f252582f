//! What a driver's error means for a claim.

use crate::request::FailureKind;
use std::error::Error as _;
use tonic::Code;

/// What an error of CreateVolume says about what was left behind.
///
/// A driver that says why it will not make the volume has not made it. Errors that a broken connection can cause as well
/// as the driver say nothing, and so does "already at work on it". Between the two are errors in which the driver
/// itself says that it failed: most of the time nothing is left, as the sidecars of CSI take it.
#[must_use]
pub fn classify(status: &tonic::Status) -> FailureKind {
    match status.code() {
        Code::ResourceExhausted
        | Code::OutOfRange
        | Code::InvalidArgument
        | Code::AlreadyExists
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::Unimplemented => FailureKind::Final,
        // An error that the transport made, and not the driver, has a cause.
        Code::PermissionDenied | Code::Unauthenticated | Code::Unknown | Code::Internal | Code::DataLoss
            if status.source().is_none() =>
        {
            FailureKind::Unclear
        }
        Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unknown
        | Code::Internal
        | Code::DataLoss
        | Code::Ok
        | Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::Unavailable => FailureKind::InDoubt,
    }
}

/// The error in the words that users of CSI know.
pub(super) fn describe(status: &tonic::Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}
