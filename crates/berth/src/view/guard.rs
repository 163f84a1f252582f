//! Who may ask: nobody but a page that this process served, opened with the address that it printed.
//!
//! - The host must be this machine's own: a name of somebody else that resolves to loopback is refused, so that a page of
//!   another site cannot come in by changing what its name means.
//! - The origin, where a browser names it, must be that host.
//! - Data needs the token. It is never in a cookie, so no other page can make a browser send it.

use http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use http::{HeaderMap, StatusCode};
use std::net::IpAddr;
use subtle::ConstantTimeEq as _;

/// How a browser says which site a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The rules for requests.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    token: String,
    /// The address that is listened on.
    address: IpAddr,
}

/// A request that is not answered, and why.
pub(super) type Refused = (StatusCode, &'static str);

impl Guard {
    pub(super) fn new(token: String, address: IpAddr) -> Self {
        Self { token, address }
    }

    /// Whether a request comes for this server, from a page of this server or from no page.
    pub(super) fn admit(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let host = text(&HOST).unwrap_or_default();
        if !self.is_own(host) {
            return Err((StatusCode::MISDIRECTED_REQUEST, "this is not that host"));
        }
        let foreign = (StatusCode::FORBIDDEN, "not from a page of another origin");
        match text(&ORIGIN) {
            Some(origin) if origin.strip_prefix("http://") != Some(host) => return Err(foreign),
            _ => {}
        }
        match text(&FETCH_SITE) {
            None | Some("same-origin" | "none") => Ok(()),
            Some(_) => Err(foreign),
        }
    }

    /// Whether a request holds the token.
    pub(super) fn identify(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given
            .and_then(|value| value.strip_prefix("Bearer "))
            .unwrap_or_default();
        match bool::from(given.as_bytes().ct_eq(self.token.as_bytes())) {
            true => Ok(()),
            false => Err((StatusCode::UNAUTHORIZED, "the token is missing or wrong")),
        }
    }

    /// Whether a host with its port is this one. Ports may differ: `kubectl port-forward` listens on one of its own.
    fn is_own(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        if name.eq_ignore_ascii_case("localhost") {
            return true;
        }
        // To listen on every address is to have no name of one's own but those of loopback.
        let own = |address: IpAddr| address.is_loopback() || (address == self.address && !address.is_unspecified());
        name.parse::<IpAddr>().is_ok_and(own)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn admits(headers: &[(&'static str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let guard = Guard::new("secret".to_owned(), "10.0.0.7".parse().unwrap());
        guard.admit(&map).is_ok()
    }

    #[test]
    fn only_names_of_this_machine_are_admitted() {
        for host in ["127.0.0.1:80", "localhost:1234", "LOCALHOST", "[::1]:80", "10.0.0.7:80"] {
            assert!(admits(&[("host", host)]), "{host}");
        }
        for host in [
            "",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "10.0.0.8",
            "0.0.0.0:80",
        ] {
            assert!(!admits(&[("host", host)]), "{host}");
        }
        assert!(!admits(&[]));
    }

    #[test]
    fn a_forwarded_port_reaches_a_page_that_listens_everywhere() {
        let guard = Guard::new("secret".to_owned(), IpAddr::from([0, 0, 0, 0]));
        let admits = |host: &str| {
            let mut map = HeaderMap::new();
            map.insert(HOST, host.parse().unwrap());
            map.insert(ORIGIN, format!("http://{host}").parse().unwrap());
            guard.admit(&map).is_ok()
        };
        for host in ["localhost:9999", "127.0.0.1:8080", "[::1]:8080"] {
            assert!(admits(host), "{host}");
        }
        for host in ["0.0.0.0:8080", "10.0.0.7:8080", "berth-view.berth-system.svc:8080"] {
            assert!(!admits(host), "{host}");
        }
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let host = ("host", "localhost:80");
        assert!(admits(&[host, ("origin", "http://localhost:80")]));
        for origin in [
            "null",
            "http://evil.example",
            "http://localhost:81",
            "https://localhost:80",
            "http://127.0.0.1:80",
        ] {
            assert!(!admits(&[host, ("origin", origin)]), "{origin}");
        }
        for (site, admitted) in [
            ("same-origin", true),
            ("none", true),
            ("same-site", false),
            ("cross-site", false),
        ] {
            assert_eq!(admits(&[host, ("sec-fetch-site", site)]), admitted, "{site}");
        }
    }

    #[test]
    fn data_needs_the_whole_token() {
        let guard = Guard::new("secret".to_owned(), IpAddr::from([127, 0, 0, 1]));
        let identified = |value: &str| {
            let mut map = HeaderMap::new();
            map.insert(AUTHORIZATION, value.parse().unwrap());
            guard.identify(&map).is_ok()
        };
        assert!(identified("Bearer secret"));
        for wrong in [
            "",
            "Bearer ",
            "Bearer secre",
            "Bearer secretly",
            "secret",
            "Basic secret",
        ] {
            assert!(!identified(wrong), "{wrong}");
        }
        assert!(guard.identify(&HeaderMap::new()).is_err());
    }
}
