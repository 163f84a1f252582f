//! The built-in driver with faults in its controller service, in its own runtime that can be killed.

use berth_provisioner::csi::proto;
use berth_provisioner::driver::{ControllerService, IdentityService, NAME, SegmentRoom, Server, Store};
use berth_provisioner::topology::Segment;
use proto::controller_server::Controller;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tonic::{Code, Request, Response, Status};

/// A fault in one call of CreateVolume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Nothing.
    None,
    /// An error and no volume.
    Refuse(Code),
    /// An error, although the volume was created.
    Lie(Code),
    /// The volume is created, but no response arrives.
    Late,
    /// The driver dies after creating the volume.
    DieAfter,
    /// The driver dies before creating the volume.
    DieBefore,
    /// Labels that no node can have.
    GarbageTopology,
    /// No volume in the answer.
    NoVolume,
    /// Less than requested.
    TooSmall,
}

#[derive(Default)]
pub struct Script {
    pub faults: Mutex<VecDeque<Fault>>,
    pub calls: AtomicUsize,
    pub failed: AtomicUsize,
    pub die: Notify,
}

struct Faulty {
    inner: ControllerService,
    store: Arc<Mutex<Store>>,
    script: Arc<Script>,
}

#[tonic::async_trait]
impl Controller for Faulty {
    async fn create_volume(
        &self,
        request: Request<proto::CreateVolumeRequest>,
    ) -> Result<Response<proto::CreateVolumeResponse>, Status> {
        let fault = self.script.faults.lock().unwrap().pop_front().unwrap_or(Fault::None);
        self.script.calls.fetch_add(1, Ordering::Relaxed);
        if fault == Fault::DieBefore {
            self.script.die.notify_one();
            std::future::pending::<()>().await;
        }
        // Faulty but truthful: a driver that has a volume with this name does not report that there is no space for it.
        let has_it = self.store.lock().unwrap().by_name(&request.get_ref().name).is_some();
        let fault = match fault {
            Fault::Refuse(_) if has_it => Fault::None,
            other => other,
        };
        let answer = match fault {
            Fault::Refuse(code) => Err(Status::new(code, "refused on purpose")),
            _ => self.inner.create_volume(request).await,
        };
        if answer.is_err() || fault != Fault::None {
            self.script.failed.fetch_add(1, Ordering::Relaxed);
        }
        let mut response = answer?.into_inner();
        match fault {
            Fault::None | Fault::Refuse(_) | Fault::DieBefore => {}
            Fault::Lie(code) => return Err(Status::new(code, "an error after the volume was made")),
            Fault::Late => std::future::pending::<()>().await,
            Fault::DieAfter => {
                self.script.die.notify_one();
                std::future::pending::<()>().await;
            }
            Fault::GarbageTopology => {
                let segments = [("no spaces".to_owned(), "\u{1f4a5}".to_owned())].into();
                response.volume.as_mut().unwrap().accessible_topology = vec![proto::Topology { segments }];
            }
            Fault::NoVolume => response.volume = None,
            Fault::TooSmall => response.volume.as_mut().unwrap().capacity_bytes = 1,
        }
        Ok(Response::new(response))
    }

    async fn delete_volume(
        &self,
        request: Request<proto::DeleteVolumeRequest>,
    ) -> Result<Response<proto::DeleteVolumeResponse>, Status> {
        self.inner.delete_volume(request).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<proto::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<proto::ValidateVolumeCapabilitiesResponse>, Status> {
        self.inner.validate_volume_capabilities(request).await
    }

    async fn list_volumes(
        &self,
        request: Request<proto::ListVolumesRequest>,
    ) -> Result<Response<proto::ListVolumesResponse>, Status> {
        self.inner.list_volumes(request).await
    }

    async fn get_capacity(
        &self,
        request: Request<proto::GetCapacityRequest>,
    ) -> Result<Response<proto::GetCapacityResponse>, Status> {
        self.inner.get_capacity(request).await
    }

    async fn controller_get_capabilities(
        &self,
        request: Request<proto::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<proto::ControllerGetCapabilitiesResponse>, Status> {
        self.inner.controller_get_capabilities(request).await
    }
}

/// The driver as a process: killing it destroys its runtime, but keeps its disk.
pub struct DriverProcess {
    runtime: Option<Runtime>,
    root: PathBuf,
    socket: PathBuf,
    rooms: Vec<SegmentRoom>,
    pub script: Arc<Script>,
}

impl DriverProcess {
    pub fn start(directory: &Path, rooms: Vec<SegmentRoom>) -> Self {
        let mut process = Self {
            runtime: None,
            root: directory.join("volumes"),
            socket: directory.join("csi.sock"),
            rooms,
            script: Arc::default(),
        };
        process.run();
        process
    }

    pub fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    fn run(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let store = Arc::new(Mutex::new(Store::open(&self.root, self.rooms.clone()).unwrap()));
        let controller = Faulty {
            inner: ControllerService::new(store.clone()),
            store,
            script: self.script.clone(),
        };
        let (socket, (started, is_started)) = (self.socket.clone(), std::sync::mpsc::channel());
        runtime.spawn(async move {
            let server = Server::start_with(socket, IdentityService::new(NAME), controller, None)
                .await
                .unwrap();
            started.send(()).unwrap();
            std::future::pending::<()>().await;
            drop(server);
        });
        is_started.recv().unwrap();
        self.runtime = Some(runtime);
    }

    /// Kills the driver at any point, and restarts it on the same disk.
    pub fn restart(&mut self) {
        let runtime = self.runtime.take().unwrap();
        // A runtime cannot be awaited from within another one.
        let killed = std::thread::spawn(move || runtime.shutdown_timeout(Duration::from_secs(10)));
        killed.join().unwrap();
        self.run();
    }

    /// The IDs of the volumes on disk.
    pub fn volumes(&self) -> Vec<String> {
        let store = Store::open(&self.root, self.rooms.clone()).unwrap();
        store.volumes().map(|volume| volume.id.clone()).collect()
    }
}

impl Drop for DriverProcess {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// One segment for each node, with this much space.
pub fn nodes_with_room(nodes: usize, bytes: i64) -> Vec<SegmentRoom> {
    (0..nodes)
        .map(|index| SegmentRoom {
            segment: Segment::from([(berth_provisioner::driver::NODE_KEY.to_owned(), format!("n{index}"))]),
            bytes: Some(bytes),
        })
        .collect()
}
