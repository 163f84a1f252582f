//! Two controllers at once on an API server that refuses requests, answers and then claims it had
//! not, and cuts watches: in the end all is bound, and nothing twice.

mod common;

use berth_apiserver::{ApiService, ResponseBody, Server};
use berth_core::api::Kind;
use berth_kube::Client;
use berth_kube::api::Api;
use berth_kube::controller::Options;
use berth_kube::resource::Resource;
use bytes::Bytes;
use common::{Cluster, create_pair, eventually};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use kube::client::Body;
use serde_json::Value;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

const PAIRS: usize = 60;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// Stands between a controller and the server.
#[derive(Clone)]
struct Faulty {
    inner: ApiService,
    requests: Arc<AtomicUsize>,
}

fn failure(status: StatusCode) -> Response<AnyBody> {
    let mut response = Response::new(
        Full::new(Bytes::from("out of order"))
            .map_err(Into::into)
            .boxed_unsync(),
    );
    *response.status_mut() = status;
    response
}

impl Service<Request<Body>> for Faulty {
    type Response = Response<AnyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let answer = self.inner.call(request);
        Box::pin(async move {
            match number % 23 {
                // Refused without effect.
                5 => return Ok(failure(StatusCode::TOO_MANY_REQUESTS)),
                11 => return Ok(failure(StatusCode::INTERNAL_SERVER_ERROR)),
                _ => {}
            }
            let response: Response<ResponseBody> = answer.await.unwrap_or_else(|never| match never {});
            if number % 23 == 17 && !is_watch {
                // Carried out, but nobody hears of it.
                return Ok(failure(StatusCode::GATEWAY_TIMEOUT));
            }
            // The connection breaks after so many bytes: few at times, but not always too few for one batch of events.
            let limit = if is_watch { 10_000 << (number % 8) } else { usize::MAX };
            Ok(response.map(|body| {
                Limited::new(body.map_err(BoxError::from), limit)
                    .map_err(Into::into)
                    .boxed_unsync()
            }))
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_controllers_on_a_faulty_server_bind_everything_once() {
    let server = Server::builder().build().unwrap();
    let client = Client::new(server.service(), "default");
    let api = Api::new(client.clone(), "test");
    let faulty = Faulty {
        inner: server.service(),
        requests: Arc::default(),
    };
    let through_faults = Client::new(faulty, "default");
    let cluster = Cluster { server, client, api };
    let options = || Options {
        resync: Duration::from_millis(100),
        ..Options::default()
    };
    let start = || {
        let cancel = berth_kube::CancellationToken::new();
        let task = tokio::spawn(berth_kube::controller::run(
            through_faults.clone(),
            options(),
            cancel.clone(),
        ));
        common::Running { cancel, task }
    };
    let running = [start(), start()];
    for number in 0..PAIRS {
        create_pair(&cluster, &format!("p{number}")).await;
    }
    eventually("all claims are bound", || async {
        let claims = cluster.list(Resource::of(Kind::PersistentVolumeClaim)).await;
        claims.iter().all(|claim| claim["status"]["phase"] == "Bound") && claims.len() == PAIRS
    })
    .await;
    for controller in running {
        controller.stop().await;
    }
    for volume in cluster.list(Resource::of(Kind::PersistentVolume)).await {
        let name = &volume["metadata"]["name"];
        assert_eq!(volume["status"]["phase"], "Bound");
        assert_eq!(&volume["spec"]["claimRef"]["name"], name);
        let claim = cluster
            .get(Kind::PersistentVolumeClaim, "default", name.as_str().unwrap())
            .await
            .unwrap();
        assert_eq!(&claim["spec"]["volumeName"], name);
        assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
    }
    let lost: Vec<Value> = cluster
        .list(Resource::EVENTS)
        .await
        .into_iter()
        .filter(|event| matches!(event["reason"].as_str(), Some("ClaimLost" | "ClaimMisbound")))
        .collect();
    assert!(lost.is_empty(), "{lost:#?}");
}
