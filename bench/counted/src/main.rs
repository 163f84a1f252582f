//! Runs one benchmark, for `bench/instructions`. A program of the pure crates alone is built in two minutes.
//!
//! Usage: `berth-counted decide [CASE] [no-volume-plugins] [nodes=N] [volumes=N] [pods=N] [claims=N] [shapes=N]`
//! or `berth-counted bind|simulate|decode [nodes=N] [pods=N]`

mod decode;
mod simulate;

use berth_bench::decide::{Case, Size, measure};
use berth_scheduler::framework::PluginName;
use berth_scheduler::profile::Profile;
use std::io::Write as _;
use std::process::ExitCode;

/// The plugins that consider volumes.
const VOLUME_PLUGINS: [PluginName; 4] = [
    PluginName::VolumeRestrictions,
    PluginName::NodeVolumeLimits,
    PluginName::VolumeBinding,
    PluginName::VolumeZone,
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let mut size = Size {
        nodes: 1000,
        volumes_per_node: 10,
        pods: 1000,
        claims: 1,
        shapes: None,
        case: Case::Plain,
        seed: 1,
    };
    let mut profile = Profile::default();
    for argument in arguments {
        if !set(&argument, &mut size, &mut profile) {
            let _ = writeln!(std::io::stderr(), "unknown argument {argument}");
            return ExitCode::from(2);
        }
    }
    let result = match what.as_str() {
        "decide" => measure(&size, &profile, &mut |_, _, _| {}).table(),
        "bind" => simulate::bind(&size),
        "simulate" => simulate::simulate(&size),
        "decode" => decode::decode(&size),
        _ => {
            let _ = writeln!(std::io::stderr(), "expected decide, bind, simulate or decode");
            return ExitCode::from(2);
        }
    };
    match write!(std::io::stdout(), "{result}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Applies an argument; returns false if it is unknown.
fn set(argument: &str, size: &mut Size, profile: &mut Profile) -> bool {
    if argument == "no-volume-plugins" {
        profile.filters.retain(|plugin| !VOLUME_PLUGINS.contains(plugin));
        profile.scores.retain(|(plugin, _)| !VOLUME_PLUGINS.contains(plugin));
        return true;
    }
    if let Some((_, case)) = Case::ALL.iter().find(|(name, _)| *name == argument) {
        size.case = *case;
        return true;
    }
    let Some((name, Ok(number))) = argument.split_once('=').map(|(name, number)| (name, number.parse())) else {
        return false;
    };
    match name {
        "nodes" => size.nodes = number,
        "volumes" => size.volumes_per_node = number,
        "pods" => size.pods = number,
        "claims" => size.claims = number,
        "shapes" => size.shapes = Some(number),
        _ => return false,
    }
    true
}
