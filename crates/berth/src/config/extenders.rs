//! The extenders of a configuration.

use super::file::{ExtenderFile, TlsConfigFile};
use super::{ConfigError, Reader};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_scheduler::extender::{DEFAULT_TIMEOUT, Extender, Tls};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// An extender of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredExtender {
    /// How it takes part in decisions.
    pub extender: Extender,
    /// The resources that it manages alone: the scheduler does not count them.
    pub ignored_resources: BTreeSet<String>,
}

fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

impl Reader {
    /// Reads the extenders. Those that can be ignored are asked last, as in kube-scheduler.
    pub(super) fn extenders(&self, files: Vec<ExtenderFile>) -> Result<Vec<ConfiguredExtender>, ConfigError> {
        let mut extenders = Vec::new();
        let mut managed = BTreeSet::new();
        for (index, file) in files.into_iter().enumerate() {
            extenders.push(self.extender(&format!("extenders[{index}]"), file, &mut managed)?);
        }
        let binders = extenders.iter().filter(|found| found.extender.binds()).count();
        if binders > 1 {
            let problem = format!("found bindVerb on {binders} extenders, expected it on one at most");
            return Err(self.error("extenders", problem));
        }
        extenders.sort_by_key(|found| found.extender.ignorable);
        Ok(extenders)
    }

    fn extender(
        &self,
        at: &str,
        file: ExtenderFile,
        managed: &mut BTreeSet<String>,
    ) -> Result<ConfiguredExtender, ConfigError> {
        let url_prefix = file.url_prefix.unwrap_or_default();
        let is_address = url_prefix.parse::<http::Uri>().is_ok_and(|url| {
            let known = matches!(url.scheme_str(), Some("http" | "https"));
            known && url.host().is_some_and(|host| !host.is_empty())
        });
        if !is_address {
            let problem = format!("found {url_prefix:?}, expected an address such as http://127.0.0.1:8888/scheduler");
            return Err(self.error(format!("{at}.urlPrefix"), problem));
        }
        let prioritize_verb = file.prioritize_verb.unwrap_or_default();
        let weight = file.weight.unwrap_or(0);
        if !prioritize_verb.is_empty() && weight <= 0 {
            let problem = format!("found {weight}, expected 1 or more, because prioritizeVerb is set");
            return Err(self.error(format!("{at}.weight"), problem));
        }
        let timeout = match given(file.http_timeout).filter(|text| text != "0s" && text != "0") {
            None => DEFAULT_TIMEOUT,
            Some(text) => crate::duration::duration(&text)
                .map_err(|problem| self.error(format!("{at}.httpTimeout"), format!("found {text:?}: {problem}")))?,
        };
        let (mut managed_resources, mut ignored_resources) = (BTreeSet::new(), BTreeSet::new());
        for (index, resource) in file.managed_resources.into_iter().enumerate() {
            let at = format!("{at}.managedResources[{index}].name");
            self.check_managed(&at, &resource.name, managed)?;
            if resource.ignored_by_scheduler {
                ignored_resources.insert(resource.name.clone());
            }
            managed_resources.insert(resource.name);
        }
        let extender = Extender {
            tls: self.tls(&format!("{at}.tlsConfig"), file.enable_https, file.tls_config)?,
            url_prefix,
            filter_verb: file.filter_verb.unwrap_or_default(),
            prioritize_verb,
            bind_verb: file.bind_verb.unwrap_or_default(),
            preempt_verb: file.preempt_verb.unwrap_or_default(),
            weight,
            timeout,
            node_cache_capable: file.node_cache_capable,
            managed_resources,
            ignorable: file.ignorable,
        };
        Ok(ConfiguredExtender {
            extender,
            ignored_resources,
        })
    }

    fn check_managed(&self, at: &str, name: &str, managed: &mut BTreeSet<String>) -> Result<(), ConfigError> {
        let domain = name.split_once('/').map(|(domain, _)| domain);
        let is_extended = domain.is_some_and(|domain| {
            !domain.is_empty() && domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io")
        });
        if !is_extended || name.ends_with('/') || name.starts_with("requests.") {
            let problem = format!("found {name:?}, expected an extended resource such as example.com/gpu");
            return Err(self.error(at, problem));
        }
        if !managed.insert(name.to_owned()) {
            let problem = format!("found {name:?} a second time, expected each resource on one extender");
            return Err(self.error(at, problem));
        }
        Ok(())
    }

    fn tls(&self, at: &str, https: bool, file: Option<TlsConfigFile>) -> Result<Tls, ConfigError> {
        let file = file.unwrap_or_default();
        let authorities = self.pem(at, "ca", file.ca_file, file.ca_data)?;
        let certificate = self.pem(at, "cert", file.cert_file, file.cert_data)?;
        let key = self.pem(at, "key", file.key_file, file.key_data)?;
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(self.error(at, "expected a certificate and its key, or neither")),
        };
        if file.insecure && authorities.is_some() {
            return Err(self.error(at, "found insecure beside a CA certificate; remove one of them"));
        }
        Ok(Tls {
            // As in kube-scheduler: without a CA certificate, any certificate is accepted.
            insecure: file.insecure || https && authorities.is_none(),
            server_name: given(file.server_name),
            authorities,
            identity,
        })
    }

    /// A certificate or key, from the configuration itself or a file.
    fn pem(
        &self,
        at: &str,
        what: &str,
        file: Option<String>,
        data: Option<String>,
    ) -> Result<Option<Vec<u8>>, ConfigError> {
        if let Some(data) = given(data) {
            let decoded = STANDARD.decode(data.split_whitespace().collect::<String>());
            let problem = |error| self.error(format!("{at}.{what}Data"), format!("not base64: {error}"));
            return decoded.map(Some).map_err(problem);
        }
        let Some(path) = given(file) else {
            return Ok(None);
        };
        let problem = |error| self.error(format!("{at}.{what}File"), format!("cannot read {path}: {error}"));
        std::fs::read(&path).map(Some).map_err(problem)
    }
}

/// An extender in the form of the file. Keys are not shown.
pub(super) fn shown(configured: &ConfiguredExtender) -> Value {
    let ConfiguredExtender {
        extender,
        ignored_resources,
    } = configured;
    let resources = extender.managed_resources.iter();
    let resources: Vec<_> = resources
        .map(|name| json!({"name": name, "ignoredByScheduler": ignored_resources.contains(name)}))
        .collect();
    let mut shown = json!({
        "urlPrefix": extender.url_prefix,
        "filterVerb": extender.filter_verb,
        "prioritizeVerb": extender.prioritize_verb,
        "bindVerb": extender.bind_verb,
        "preemptVerb": extender.preempt_verb,
        "weight": extender.weight,
        "httpTimeout": format!("{}ms", extender.timeout.as_millis()),
        "nodeCacheCapable": extender.node_cache_capable,
        "managedResources": resources,
        "ignorable": extender.ignorable,
    });
    if extender.tls != Tls::default() {
        shown["tlsConfig"] = json!({
            "insecure": extender.tls.insecure,
            "serverName": extender.tls.server_name,
            "caData": extender.tls.authorities.as_ref().map(|pem| STANDARD.encode(pem)),
        });
    }
    shown
}
