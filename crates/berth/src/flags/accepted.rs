//! Flags that are accepted without effect, each with the reason.

use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::marker::PhantomData;

/// A flag of another program that has no effect here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// Whether its value is optional.
    pub is_switch: bool,
    /// What is done instead.
    pub instead: &'static str,
}

impl Flag {
    /// A flag with a value.
    #[must_use]
    pub const fn value(name: &'static str, instead: &'static str) -> Self {
        Self {
            name,
            is_switch: false,
            instead,
        }
    }

    /// A boolean flag.
    #[must_use]
    pub const fn switch(name: &'static str, instead: &'static str) -> Self {
        Self {
            name,
            is_switch: true,
            instead,
        }
    }

    fn argument(&self) -> Arg {
        let argument = Arg::new(self.name)
            .long(self.name)
            .hide(true)
            .help(format!("Has no effect: {}", self.instead))
            .action(ArgAction::Append)
            .allow_hyphen_values(true);
        match self.is_switch {
            true => argument
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true"),
            false => argument.num_args(1),
        }
    }
}

/// The flags of a program that have no effect.
pub trait Table {
    /// The flags, in lists that programs share.
    const FLAGS: &'static [&'static [Flag]];
}

/// All flags of a table.
pub fn flags<T: Table>() -> impl Iterator<Item = &'static Flag> {
    T::FLAGS.iter().copied().flatten()
}

/// The flags of a table that are set on a command line.
#[derive(Clone, Debug)]
pub struct Accepted<T> {
    given: Vec<&'static Flag>,
    table: PhantomData<T>,
}

impl<T> Accepted<T> {
    /// Warnings for the user, one sentence each.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let given = self.given.iter();
        given.map(|flag| format!("--{} has no effect: {}", flag.name, flag.instead))
    }
}

impl<T: Table> FromArgMatches for Accepted<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        // Charts omit a flag by setting an empty value.
        let is_given = |flag: &Flag| {
            let mut values = matches.get_many::<String>(flag.name).into_iter().flatten();
            values.any(|value| !value.is_empty())
        };
        Ok(Self {
            given: flags::<T>().filter(|flag| is_given(flag)).collect(),
            table: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Table> Args for Accepted<T> {
    fn augment_args(command: Command) -> Command {
        flags::<T>().fold(command, |command, flag| command.arg(flag.argument()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
