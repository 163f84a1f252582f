//! What a driver's error means for a claim.

use crate::request::FailureKind;
use std::error::Error as _;
use tonic::Code;

/// What an error of CreateVolume implies about leftovers.
///
/// A driver that reports why it will not create the volume has not created it. Errors that a broken connection can also
/// cause prove nothing, and neither does "operation already in progress". In between are errors in which the driver
/// itself reports failure: usually nothing is left behind, as the CSI sidecars assume.
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
        // An error from the transport, not from the driver, has a source.
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

/// The error in terms that CSI users know.
pub(super) fn describe(status: &tonic::Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}
