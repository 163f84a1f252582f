//! Plays a case as `berth simulate` does.

use crate::case::Case;
use crate::picture::Picture;
use berth::cli::{Cli, Command};
use berth::input::NoProgress;
use berth::simulate;
use clap::Parser;
use std::ffi::OsStr;

/// The final state of the case; an error if it cannot be played.
pub fn play(case: &Case) -> Result<Picture, String> {
    let mut arguments: Vec<&OsStr> = ["berth", "simulate", "-f"].map(OsStr::new).into();
    arguments.push(case.file.as_os_str());
    if let Some(scenario) = &case.scenario {
        arguments.extend([OsStr::new("--scenario"), scenario.as_os_str()]);
    }
    let Command::Simulate(arguments) = Cli::parse_from(arguments).command else {
        panic!("these are the arguments of simulate");
    };
    let loaded =
        simulate::load(&arguments, &mut std::io::empty(), &mut NoProgress).map_err(|error| error.to_string())?;
    let mut simulation = loaded.simulation;
    match &loaded.scenario {
        Some(scenario) => simulation
            .play(scenario, &mut |_| {}, &mut |_| {})
            .map_err(|error| error.to_string())?,
        None => simulation.run(&mut |_| {}),
    }
    Ok(Picture::of_memory(simulation.objects(), simulation.events()))
}
