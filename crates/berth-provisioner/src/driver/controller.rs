//! Creates and deletes volumes.

use super::store::{Store, StoreError, StoredVolume};
use crate::csi::proto;
use crate::topology::Segment;
use proto::controller_server::Controller;
use proto::controller_service_capability::rpc::Type as Rpc;
use proto::volume_capability::AccessType;
use proto::volume_content_source::Type as ContentType;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tonic::{Request, Response, Status};

/// The size of a volume if none is requested.
const DEFAULT_BYTES: i64 = 1 << 30;

/// The controller service.
#[derive(Clone, Debug)]
pub struct ControllerService {
    store: Arc<Mutex<Store>>,
    /// The default place of a call that specifies none.
    home: Segment,
    /// A key and value that callers must provide among their secrets.
    secret: Option<(String, String)>,
}

/// The store, even after a call panicked: the state on disk is still correct.
pub(super) fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<StoreError> for Status {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error {
            StoreError::Full { .. } | StoreError::NoSegment { .. } => Self::resource_exhausted(message),
            StoreError::TooLarge { .. } => Self::out_of_range(message),
            StoreError::NotAlone { .. } => Self::failed_precondition(message),
            StoreError::Io { .. } | StoreError::Broken { .. } => Self::internal(message),
        }
    }
}

impl ControllerService {
    /// A service over a store, which node services may share.
    #[must_use]
    pub fn new(store: Arc<Mutex<Store>>) -> Self {
        Self::at_home(store, Segment::new())
    }

    /// A service that runs next to the node service of one node: this segment is the default place.
    #[must_use]
    pub fn at_home(store: Arc<Mutex<Store>>, home: Segment) -> Self {
        Self {
            store,
            home,
            secret: None,
        }
    }

    /// Requires a secret for creating and deleting volumes.
    #[must_use]
    pub fn with_secret(self, secret: Option<(String, String)>) -> Self {
        Self { secret, ..self }
    }

    fn check_secret(&self, shown: &BTreeMap<String, String>) -> Result<(), Status> {
        match &self.secret {
            Some((key, value)) if shown.get(key) != Some(value) => Err(Status::unauthenticated(format!(
                "the backend wants to see a secret with the right {key:?}"
            ))),
            _ => Ok(()),
        }
    }

    /// The place of a call, or the default.
    fn or_home(&self, place: Segment) -> Segment {
        if place.is_empty() { self.home.clone() } else { place }
    }

    fn create(&self, request: &proto::CreateVolumeRequest) -> Result<StoredVolume, Status> {
        let asked = Asked::check(request)?;
        self.check_secret(&request.secrets)?;
        let mut store = lock(&self.store);
        if let Some(volume) = store.by_name(&request.name) {
            return if asked.is_met_by(volume) {
                Ok(volume.clone())
            } else {
                Err(Status::already_exists(format!(
                    "volume {:?} exists with {} bytes in {}, which differs from the request",
                    request.name,
                    volume.bytes,
                    crate::topology::describe(&volume.segment)
                )))
            };
        }
        let places = match asked.places.as_slice() {
            [] if !self.home.is_empty() => std::slice::from_ref(&self.home),
            places => places,
        };
        if let Some(source) = &asked.source {
            let found = store.get(source).filter(|volume| !volume.ephemeral);
            let found = found.ok_or_else(|| Status::not_found(format!("there is no volume {source:?} to copy")))?;
            if asked.bytes < found.bytes {
                return Err(Status::out_of_range(format!(
                    "a copy of {} bytes cannot hold volume {source:?} of {} bytes",
                    asked.bytes, found.bytes
                )));
            }
        }
        let segment = store.find_room(places, asked.bytes)?;
        Ok(match &asked.source {
            Some(source) => store.copy(&request.name, asked.bytes, segment, source)?,
            None => store.create(&request.name, asked.bytes, segment, false)?,
        })
    }
}

/// A validated request.
struct Asked {
    bytes: i64,
    limit: Option<i64>,
    /// Best first; empty means anywhere.
    places: Vec<Segment>,
    /// The volume to copy.
    source: Option<String>,
}

impl Asked {
    fn check(request: &proto::CreateVolumeRequest) -> Result<Self, Status> {
        if request.name.is_empty() {
            return Err(Status::invalid_argument("a volume needs a name"));
        }
        check_capabilities(&request.volume_capabilities)?;
        let source = match request.volume_content_source.as_ref().map(|source| &source.r#type) {
            None => None,
            Some(Some(ContentType::Volume(source))) => Some(source.volume_id.clone()),
            Some(Some(ContentType::Snapshot(_)) | None) => {
                return Err(Status::invalid_argument(
                    "volumes can be copied, but there are no snapshots",
                ));
            }
        };
        let range = request.capacity_range.unwrap_or_default();
        let limit = Some(range.limit_bytes).filter(|limit| *limit != 0);
        if range.required_bytes < 0 || limit.is_some_and(|limit| limit < range.required_bytes.max(1)) {
            return Err(Status::out_of_range(format!(
                "a size from {} up to {} bytes is not possible",
                range.required_bytes, range.limit_bytes
            )));
        }
        let bytes = match range.required_bytes {
            0 => limit.map_or(DEFAULT_BYTES, |limit| limit.min(DEFAULT_BYTES)),
            required => required,
        };
        let places = request
            .accessibility_requirements
            .as_ref()
            .map_or_else(Vec::new, |requirement| {
                let in_order = requirement.preferred.iter().chain(&requirement.requisite);
                let mut places: Vec<Segment> = Vec::new();
                for topology in in_order {
                    if !places.contains(&topology.segments) {
                        places.push(topology.segments.clone());
                    }
                }
                places
            });
        Ok(Self {
            bytes,
            limit,
            places,
            source,
        })
    }

    fn is_met_by(&self, volume: &StoredVolume) -> bool {
        let inside = |place: &Segment| place.iter().all(|(key, value)| volume.segment.get(key) == Some(value));
        volume.bytes >= self.bytes
            && volume.source == self.source
            && self.limit.is_none_or(|limit| volume.bytes <= limit)
            && (self.places.is_empty() || self.places.iter().any(inside))
    }
}

/// Directories can be mounted, but are not devices.
pub(super) fn check_capabilities(capabilities: &[proto::VolumeCapability]) -> Result<(), Status> {
    if capabilities.is_empty() {
        return Err(Status::invalid_argument("how the volume will be used is missing"));
    }
    for capability in capabilities {
        match capability.access_type {
            Some(AccessType::Mount(_)) => {}
            Some(AccessType::Block(_)) => {
                return Err(Status::invalid_argument(
                    "volumes are directories: block access is not supported",
                ));
            }
            None => return Err(Status::invalid_argument("the access type is missing")),
        }
    }
    Ok(())
}

fn to_proto(volume: &StoredVolume) -> proto::Volume {
    proto::Volume {
        capacity_bytes: volume.bytes,
        volume_id: volume.id.clone(),
        volume_context: [("name".to_owned(), volume.name.clone())].into(),
        content_source: volume.source.as_ref().map(|source| proto::VolumeContentSource {
            r#type: Some(ContentType::Volume(proto::volume_content_source::VolumeSource {
                volume_id: source.clone(),
            })),
        }),
        accessible_topology: vec![proto::Topology {
            segments: volume.segment.clone(),
        }],
    }
}

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<proto::CreateVolumeRequest>,
    ) -> Result<Response<proto::CreateVolumeResponse>, Status> {
        let volume = self.create(request.get_ref())?;
        Ok(Response::new(proto::CreateVolumeResponse {
            volume: Some(to_proto(&volume)),
        }))
    }

    async fn delete_volume(
        &self,
        request: Request<proto::DeleteVolumeRequest>,
    ) -> Result<Response<proto::DeleteVolumeResponse>, Status> {
        let id = &request.get_ref().volume_id;
        if id.is_empty() {
            return Err(Status::invalid_argument("the volume's id is missing"));
        }
        self.check_secret(&request.get_ref().secrets)?;
        lock(&self.store).delete(id)?;
        Ok(Response::new(proto::DeleteVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<proto::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<proto::ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        if request.volume_id.is_empty() || request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("the volume's id or its use is missing"));
        }
        if lock(&self.store).get(&request.volume_id).is_none() {
            return Err(Status::not_found(format!("there is no volume {:?}", request.volume_id)));
        }
        let response = match check_capabilities(&request.volume_capabilities) {
            Ok(()) => proto::ValidateVolumeCapabilitiesResponse {
                confirmed: Some(proto::validate_volume_capabilities_response::Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                }),
                message: String::new(),
            },
            Err(status) => proto::ValidateVolumeCapabilitiesResponse {
                confirmed: None,
                message: status.message().to_owned(),
            },
        };
        Ok(Response::new(response))
    }

    async fn list_volumes(
        &self,
        request: Request<proto::ListVolumesRequest>,
    ) -> Result<Response<proto::ListVolumesResponse>, Status> {
        let request = request.get_ref();
        let most = usize::try_from(request.max_entries)
            .map_err(|_| Status::invalid_argument("a page cannot have a negative number of volumes"))?;
        let store = lock(&self.store);
        // The token is the last ID of the previous page, so that created and deleted volumes do not shift pages.
        let start = &request.starting_token;
        if !start.is_empty() && !start.starts_with("vol-") {
            return Err(Status::aborted(format!("{start:?} is no token of a page")));
        }
        let rest = store
            .volumes()
            .filter(|volume| !volume.ephemeral && volume.id.as_str() > start.as_str());
        let page_length = if most == 0 { usize::MAX } else { most };
        let mut rest = rest.peekable();
        let page: Vec<_> = rest.by_ref().take(page_length).collect();
        let next_token = match (page.last(), rest.peek()) {
            (Some(last), Some(_)) => last.id.clone(),
            _ => String::new(),
        };
        let entries = page.into_iter().map(|volume| proto::list_volumes_response::Entry {
            volume: Some(to_proto(volume)),
        });
        Ok(Response::new(proto::ListVolumesResponse {
            entries: entries.collect(),
            next_token,
        }))
    }

    async fn get_capacity(
        &self,
        request: Request<proto::GetCapacityRequest>,
    ) -> Result<Response<proto::GetCapacityResponse>, Status> {
        let place = self.or_home(request.into_inner().accessible_topology.unwrap_or_default().segments);
        let store = lock(&self.store);
        let free = || store.free_within(&place).map(|(_, free)| free.unwrap_or(i64::MAX));
        Ok(Response::new(proto::GetCapacityResponse {
            available_capacity: free().fold(0, i64::saturating_add),
            maximum_volume_size: free().max(),
        }))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<proto::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<proto::ControllerGetCapabilitiesResponse>, Status> {
        let call = |call: Rpc| proto::ControllerServiceCapability {
            r#type: Some(proto::controller_service_capability::Type::Rpc(
                proto::controller_service_capability::Rpc { r#type: call.into() },
            )),
        };
        let calls = [
            Rpc::CreateDeleteVolume,
            Rpc::ListVolumes,
            Rpc::GetCapacity,
            Rpc::CloneVolume,
            Rpc::SingleNodeMultiWriter,
        ];
        Ok(Response::new(proto::ControllerGetCapabilitiesResponse {
            capabilities: calls.map(call).into(),
        }))
    }
}
