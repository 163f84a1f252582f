//! The identity of the driver.

use crate::csi::proto;
use proto::identity_server::Identity;
use proto::plugin_capability::service::Type as Service;
use tonic::{Request, Response, Status};

/// The identity service.
#[derive(Clone, Debug)]
pub struct IdentityService {
    name: String,
}

impl IdentityService {
    /// A service with this driver name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<proto::GetPluginInfoRequest>,
    ) -> Result<Response<proto::GetPluginInfoResponse>, Status> {
        Ok(Response::new(proto::GetPluginInfoResponse {
            name: self.name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<proto::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<proto::GetPluginCapabilitiesResponse>, Status> {
        let service = |service: Service| proto::PluginCapability {
            r#type: Some(proto::plugin_capability::Type::Service(
                proto::plugin_capability::Service { r#type: service.into() },
            )),
        };
        let services = [Service::ControllerService, Service::VolumeAccessibilityConstraints];
        Ok(Response::new(proto::GetPluginCapabilitiesResponse {
            capabilities: services.map(service).into(),
        }))
    }

    async fn probe(&self, _: Request<proto::ProbeRequest>) -> Result<Response<proto::ProbeResponse>, Status> {
        Ok(Response::new(proto::ProbeResponse { ready: Some(true) }))
    }
}
