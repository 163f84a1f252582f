//! What a driver's error means for a claim.

use crate::request::FailureKind;
use tonic::Code;

/// Whether an error of CreateVolume is certain to have left nothing behind.
///
/// A driver that says why it will not make the volume has not made it. Errors that a broken connection
/// can cause as well as the driver say nothing, and so does "already at work on it".
#[must_use]
pub fn classify(code: Code) -> FailureKind {
    match code {
        Code::ResourceExhausted
        | Code::OutOfRange
        | Code::InvalidArgument
        | Code::AlreadyExists
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::Unimplemented => FailureKind::Final,
        // Without credentials a driver cannot even look whether it has the volume, and no other node helps.
        Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => FailureKind::InDoubt,
    }
}

/// The error in the words that users of CSI know.
pub(super) fn describe(status: &tonic::Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}
