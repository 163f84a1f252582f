//! Arguments in the format of Go programs: `-v=5`, `--log_dir`, `--strict-topology=T`, `:8080`.

use clap::{Arg, Command};
use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::path::Path;

/// The default of `--csi-address` in the external-provisioner.
const CSI_SOCKET: &str = "/run/csi/socket";

/// A boolean as parsed by Go's `strconv.ParseBool`.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// A listen address as in Go's `net.Listen`: without a host it means every address of the machine.
///
/// # Errors
/// If it has no port, or its host has no address.
pub(crate) fn address(text: &str) -> anyhow::Result<SocketAddr> {
    if let Some(port) = text.strip_prefix(':') {
        let port = port
            .parse()
            .map_err(|_| anyhow::anyhow!("{text:?} is not a listen address: expected a port, such as :8080"))?;
        // An IPv6 socket accepts IPv4 as well, but there are machines without IPv6.
        let any = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) {
            Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
            Err(_) => Ipv4Addr::UNSPECIFIED.into(),
        };
        return Ok(SocketAddr::new(any, port));
    }
    let mut found = text.to_socket_addrs().ok().into_iter().flatten();
    found
        .next()
        .ok_or_else(|| anyhow::anyhow!("{text:?} is not a listen address: expected HOST:PORT or :PORT"))
}

/// The components that accept arguments in the format of Go programs.
const COMPONENTS: [&str; 3] = ["scheduler", "controller", "provisioner"];

/// Arguments in the format of this command. A program that was started as `csi-provisioner` or `kube-scheduler` is the
/// component with that name.
#[must_use]
pub fn arguments(command: &Command, arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut given = arguments.into_iter();
    let Some(program) = given.next() else {
        return Vec::new();
    };
    let mut all = vec![program];
    match Path::new(&all[0]).file_stem().and_then(OsStr::to_str) {
        Some("csi-provisioner") => {
            all.push("provisioner".into());
            all.push(format!("--csi-address={CSI_SOCKET}").into());
        }
        // Next to kube-schedulers on other nodes, only one may work.
        Some("kube-scheduler") => {
            let usual = ["scheduler", "--usual-lease=kube-scheduler", "--secure-port=10259"];
            all.extend(usual.map(OsString::from));
        }
        _ => {}
    }
    all.extend(given);
    let Some(at) = component_at(&all) else {
        return all;
    };
    let Some(component) = all[at].to_str().and_then(|name| command.find_subcommand(name)) else {
        return all;
    };
    let rest = all.split_off(at + 1);
    all.extend(normalized(component, rest));
    all
}

/// The position of the component name.
fn component_at(arguments: &[OsString]) -> Option<usize> {
    let mut words = arguments.iter().enumerate().skip(1);
    while let Some((at, word)) = words.next() {
        match word.to_str()? {
            // The only global option with a value.
            "--color" => drop(words.next()),
            word if word.starts_with('-') => {}
            word => return COMPONENTS.contains(&word).then_some(at),
        }
    }
    None
}

fn normalized(component: &Command, arguments: Vec<OsString>) -> Vec<OsString> {
    let mut all = Vec::with_capacity(arguments.len());
    let mut rest = arguments.into_iter().peekable();
    while let Some(argument) = rest.next() {
        let Some(text) = argument.to_str() else {
            all.push(argument);
            continue;
        };
        if text == "--" {
            all.push(argument);
            all.extend(rest);
            return all;
        }
        let next = rest.peek().and_then(|next| next.to_str());
        if text == "-v" && next.is_some_and(is_number) {
            let level = rest.next().unwrap_or_default();
            all.push(OsString::from("--v"));
            all.push(level);
        } else if let Some(level) = text.strip_prefix("-v").filter(|level| is_number(level)) {
            all.push(format!("--v={level}").into());
        } else {
            all.push(long(component, text).map_or(argument.clone(), OsString::from));
        }
    }
    all
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A flag with two dashes and without the underscores that Go's flags may have; `None` if the component does not have
/// it.
fn long(component: &Command, text: &str) -> Option<String> {
    let written = text.strip_prefix("--").or_else(|| text.strip_prefix('-'))?;
    let (name, value) = match written.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (written, None),
    };
    let name = name.replace('_', "-");
    // One letter without a value is a short flag of our own.
    let is_short = name.len() == 1 && value.is_none() && !text.starts_with("--");
    if is_short || !component.get_arguments().any(|argument| is_named(argument, &name)) {
        return None;
    }
    Some(match value {
        Some(value) => format!("--{name}={value}"),
        None => format!("--{name}"),
    })
}

fn is_named(argument: &Arg, name: &str) -> bool {
    argument.get_long() == Some(name)
        || argument
            .get_all_aliases()
            .is_some_and(|aliases| aliases.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;

    fn check(given: &str, expected: &str) {
        let given = given.split_whitespace().map(OsString::from);
        let found = arguments(&Cli::command(), given);
        let found: Vec<&str> = found.iter().map(|one| one.to_str().unwrap()).collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn flags_of_go_become_flags_of_ours() {
        check("berth provisioner -v=5", "berth provisioner --v=5");
        check("berth provisioner -v5 --v 3", "berth provisioner --v=5 --v 3");
        check("berth provisioner -v 5", "berth provisioner --v 5");
        check(
            "berth --color never provisioner -csi-address=/csi/csi.sock -leader-election",
            "berth --color never provisioner --csi-address=/csi/csi.sock --leader-election",
        );
        check(
            "berth scheduler --leader_elect=false",
            "berth scheduler --leader-elect=false",
        );
    }

    #[test]
    fn our_own_arguments_stay_as_they_are() {
        for line in [
            "berth provisioner -v --csi-address a_b",
            "berth scheduler -h",
            "berth scheduler -x=1 --no_such_flag",
            "berth explain -v=5 scheduler",
            "berth scheduler -- -v=5",
        ] {
            check(line, line);
        }
    }

    #[test]
    fn a_program_of_another_name_is_that_component() {
        check(
            "/csi-provisioner --csi-address=/csi/csi.sock -v=2",
            "/csi-provisioner provisioner --csi-address=/run/csi/socket --csi-address=/csi/csi.sock --v=2",
        );
        check(
            "kube-scheduler -v=2",
            "kube-scheduler scheduler --usual-lease=kube-scheduler --secure-port=10259 --v=2",
        );
        check("kubectl-berth explain", "kubectl-berth explain");
    }

    #[test]
    fn booleans_are_those_of_go() {
        assert_eq!(boolean("T"), Ok(true));
        assert_eq!(boolean("0"), Ok(false));
        assert!(boolean("yes").is_err());
    }

    #[test]
    fn an_address_without_a_host_is_every_address() {
        let any = address(":8080").unwrap();
        assert!(any.ip().is_unspecified());
        assert_eq!(any.port(), 8080);
        assert_eq!(address("127.0.0.1:1").unwrap(), "127.0.0.1:1".parse().unwrap());
        for text in ["", ":", ":http-endpoint", "8080"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
