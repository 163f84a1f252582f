//! Authorizes requests to what a component serves over TLS, by asking the API server, as in kube-scheduler.
//!
//! A bearer token is authenticated by the API server (`TokenReview`), which is then asked whether the user may read the path
//! (`SubjectAccessReview`). Its response is cached for some seconds, so that scrapers and unknown clients do not keep it
//! busy.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::api::{Api, ApiError};
use crate::endpoint::lock;

/// How long a response of the API server is cached.
const GOOD_FOR: Duration = Duration::from_secs(10);
/// Number of cached responses.
const REMEMBERED_MAX: usize = 64;
/// Number of concurrent reviews.
const QUESTIONS_MAX: usize = 4;
/// Timeout of the API server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum length of a token. Those of service accounts have about a thousand bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Asks the API server for authorization.
pub(crate) struct Guard {
    api: Api,
    /// The runtime of requests to the API server: its connections belong to those who use them most.
    runtime: Handle,
    /// Paths without authorization.
    open_paths: Vec<String>,
    questions: Arc<Semaphore>,
    remembered: Mutex<VecDeque<Remembered>>,
}

struct Remembered {
    request: Request,
    verdict: Result<(), Refusal>,
    at: Instant,
}

/// The requested path, and the client.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    token: Option<String>,
    path: String,
    verb: String,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: StatusCode,
    pub(crate) text: String,
}

impl Refusal {
    fn unauthorized() -> Self {
        let (code, text) = (StatusCode::UNAUTHORIZED, "Unauthorized".to_owned());
        Self { code, text }
    }

    fn forbidden(request: &Request, user: &str) -> Self {
        Self {
            code: StatusCode::FORBIDDEN,
            text: format!("User {user:?} cannot {} path {:?}", request.verb, request.path),
        }
    }

    fn unknown(problem: &str) -> Self {
        tracing::warn!(problem, "cannot ask the API server to authorize a metrics request");
        Self {
            code: StatusCode::INTERNAL_SERVER_ERROR,
            text: "the API server could not be asked".to_owned(),
        }
    }
}

impl Guard {
    /// Must be called in the runtime of the component.
    pub(crate) fn new(api: Api, open_paths: Vec<String>) -> Self {
        Self {
            api,
            runtime: Handle::current(),
            open_paths,
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            remembered: Mutex::default(),
        }
    }

    /// Whether a request may be answered.
    pub(crate) async fn admit(&self, method: &http::Method, path: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        if self.is_open(path) {
            return Ok(());
        }
        let request = Request {
            token: bearer(headers)?,
            path: path.to_owned(),
            verb: method.as_str().to_ascii_lowercase(),
        };
        if let Some(verdict) = self.recall(&request) {
            return verdict;
        }
        let turn = self.questions.clone().acquire_owned().await;
        // Another request may have asked while this one waited.
        if let Some(verdict) = self.recall(&request) {
            return verdict;
        }
        let (api, asked) = (self.api.clone(), request.clone());
        // Continues if the client disconnects, and keeps its slot.
        let verdict = self.runtime.spawn(async move {
            let _turn = turn;
            tokio::time::timeout(PATIENCE, review(&api, &asked)).await
        });
        let verdict = match verdict.await {
            Ok(Ok(Ok(verdict))) => verdict,
            Ok(Ok(Err(error))) => return Err(Refusal::unknown(&error.to_string())),
            Ok(Err(_)) => return Err(Refusal::unknown("it does not answer")),
            Err(_) => return Err(Refusal::unknown("the request was canceled")),
        };
        self.remember(request, verdict.clone());
        verdict
    }

    /// Whether a path needs no authorization. A star matches any suffix.
    fn is_open(&self, path: &str) -> bool {
        self.open_paths.iter().any(|open| match open.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path.trim_matches('/') == open.trim_matches('/'),
        })
    }

    fn recall(&self, request: &Request) -> Option<Result<(), Refusal>> {
        let mut remembered = lock(&self.remembered);
        remembered.retain(|remembered| remembered.at.elapsed() < GOOD_FOR);
        let found = remembered.iter().find(|remembered| remembered.request == *request);
        found.map(|remembered| remembered.verdict.clone())
    }

    fn remember(&self, request: Request, verdict: Result<(), Refusal>) {
        let mut remembered = lock(&self.remembered);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.pop_front();
        }
        let at = Instant::now();
        remembered.push_back(Remembered { request, verdict, at });
    }
}

/// The token of a request, if it has one.
fn bearer(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| Refusal::unauthorized())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(Refusal::unauthorized)?;
    let token = token.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err(Refusal::unauthorized());
    }
    Ok(Some(token.to_owned()))
}

/// Asks the API server.
async fn review(api: &Api, request: &Request) -> Result<Result<(), Refusal>, ApiError> {
    let user = match &request.token {
        None => json!({"username": "system:anonymous", "groups": ["system:unauthenticated"]}),
        Some(token) => {
            let review =
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
            let status = ask(api, TOKEN_REVIEWS, &review).await?;
            if status["authenticated"] != true {
                return Ok(Err(Refusal::unauthorized()));
            }
            status["user"].clone()
        }
    };
    let mut spec = Map::new();
    for (from, to) in [
        ("username", "user"),
        ("groups", "groups"),
        ("uid", "uid"),
        ("extra", "extra"),
    ] {
        if let Some(value) = user.get(from).filter(|value| !value.is_null()) {
            spec.insert(to.to_owned(), value.clone());
        }
    }
    let attributes = json!({"path": request.path, "verb": request.verb});
    spec.insert("nonResourceAttributes".to_owned(), attributes);
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
    let status = ask(api, ACCESS_REVIEWS, &review).await?;
    let name = user["username"].as_str().unwrap_or_default();
    Ok(match status["allowed"] == true && status["denied"] != true {
        true => Ok(()),
        false => Err(Refusal::forbidden(request, name)),
    })
}

/// The API server's response to a review.
async fn ask(api: &Api, path: &str, review: &Value) -> Result<Value, ApiError> {
    let answer = api.post_path(path, review).await?;
    let answer: Value = serde_json::from_slice(&answer).map_err(|error| ApiError::Malformed {
        path: path.to_owned(),
        problem: error.to_string(),
    })?;
    Ok(answer["status"].clone())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use berth_apiserver::{Server, Tls};
    use http::Method;
    use prometheus_client::registry::Registry;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};
    use tokio_rustls::{TlsAcceptor, TlsConnector};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::endpoint::{Answers, Health, Secured, serve_with};

    fn guard(server: &Server) -> Guard {
        let client = kube::Client::new(server.service(), "default");
        Guard::new(
            Api::new(client, "test"),
            vec!["/healthz".to_owned(), "/open/*".to_owned()],
        )
    }

    fn showing(token: &str) -> HeaderMap {
        let value = format!("Bearer {token}").parse().unwrap();
        HeaderMap::from_iter([(header::AUTHORIZATION, value)])
    }

    async fn code(guard: &Guard, path: &str, headers: &HeaderMap) -> u16 {
        let admitted = guard.admit(&Method::GET, path, headers).await;
        admitted.map_or_else(|refusal| refusal.code.as_u16(), |()| 200)
    }

    #[tokio::test]
    async fn the_api_server_says_who_may_read() {
        let server = Server::builder().build().unwrap();
        let guard = guard(&server);
        let nobody = HeaderMap::new();
        for (path, headers, expected) in [
            ("/healthz", &nobody, 200),
            ("/open/anything", &nobody, 200),
            ("/healthz/else", &nobody, 403),
            ("/metrics", &nobody, 403),
            ("/metrics", &showing("wrong"), 401),
            ("/metrics", &showing(server.token()), 200),
            ("/healthz", &showing("wrong"), 200),
        ] {
            assert_eq!(code(&guard, path, headers).await, expected, "{path} {headers:?}");
        }
        let basic = HeaderMap::from_iter([(header::AUTHORIZATION, "Basic YTpi".parse().unwrap())]);
        assert_eq!(code(&guard, "/metrics", &basic).await, 401);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_good_for_a_while_and_few_are_remembered() {
        let server = Server::builder().build().unwrap();
        let guard = guard(&server);
        for number in 0..3 * REMEMBERED_MAX {
            assert_eq!(code(&guard, "/metrics", &showing(&number.to_string())).await, 401);
        }
        assert_eq!(guard.remembered.lock().unwrap().len(), REMEMBERED_MAX);
        let request = |token: usize| Request {
            token: Some(token.to_string()),
            path: "/metrics".to_owned(),
            verb: "get".to_owned(),
        };
        assert_eq!(guard.recall(&request(0)), None);
        let last = request(3 * REMEMBERED_MAX - 1);
        assert_eq!(guard.recall(&last), Some(Err(Refusal::unauthorized())));
        tokio::time::advance(GOOD_FOR).await;
        assert_eq!(guard.recall(&last), None);
    }

    /// The status line of the answer to a request over TLS.
    async fn get(address: SocketAddr, tls: &Tls, path: &str, token: Option<&str>) -> String {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(tls.authority_pem().as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let mut stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .unwrap();
        let token = token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n{token}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The peer may close without a TLS message.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn probes_need_no_token_over_tls_and_scrapers_do() {
        let server = Server::builder().build().unwrap();
        let tls = Tls::generate(&[]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let secured = Secured {
            acceptor: TlsAcceptor::from(tls.for_http1()),
            guard: Arc::new(guard(&server)),
        };
        let answers = Answers::new(Health::default(), Arc::new(Registry::default()), None);
        let cancel = CancellationToken::new();
        let serving = tokio::spawn(serve_with(listener, answers, Some(secured), cancel.clone()));
        assert_eq!(get(address, &tls, "/healthz", None).await, "HTTP/1.1 200 OK");
        assert_eq!(get(address, &tls, "/metrics", None).await, "HTTP/1.1 403 Forbidden");
        let token = Some(server.token());
        assert_eq!(get(address, &tls, "/metrics", token).await, "HTTP/1.1 200 OK");
        cancel.cancel();
        serving.await.unwrap();
    }
    /// More than the maximum number of connections, none of which finishes its handshake.
    #[tokio::test(flavor = "multi_thread")]
    async fn clients_that_never_finish_a_handshake_keep_nobody_from_health() {
        let server = Server::builder().build().unwrap();
        let tls = Tls::generate(&[]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let secured = Secured {
            acceptor: TlsAcceptor::from(tls.for_http1()),
            guard: Arc::new(guard(&server)),
        };
        let answers = Answers::new(Health::default(), Arc::new(Registry::default()), None);
        let cancel = CancellationToken::new();
        let serving = tokio::spawn(serve_with(listener, answers, Some(secured), cancel.clone()));
        let mut idle = Vec::new();
        for number in 0..300 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if number % 2 == 0 {
                // The head of a record that says it is longer.
                stream.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
            }
            idle.push(stream);
        }
        let deadline = Duration::from_secs(60);
        let health = tokio::time::timeout(deadline, get(address, &tls, "/healthz", None)).await;
        assert_eq!(health.unwrap(), "HTTP/1.1 200 OK");
        cancel.cancel();
        tokio::time::timeout(deadline, serving).await.unwrap().unwrap();
        drop(idle);
    }
}
