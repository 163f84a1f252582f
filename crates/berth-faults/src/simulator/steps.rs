//! The steps of a story: faults, user actions, and the end of faults.

use super::{Author, Event, Simulator};
use crate::story::{Action, Moment, Step};
use crate::user;

impl Simulator {
    /// A step is due.
    pub(super) fn happen(&mut self, step: Step) {
        match step.moment {
            Moment::AtOnce => self.perform(step),
            Moment::BeforeWrite { .. } | Moment::AfterWrite { .. } => self.armed.push(step),
        }
    }

    fn perform(&mut self, step: Step) {
        let now = self.world.now;
        self.trace.line(now, || format!("* {step}"));
        match step.action {
            Action::Hold { process, kind, millis } => {
                if let Some(watch) = self.processes.get_mut(process).and_then(|one| one.watch(kind)) {
                    watch.held_until = now + millis;
                    watch.was_held = true;
                }
            }
            Action::Relist { process, kind } => {
                if let Some(watch) = self.processes.get_mut(process).and_then(|one| one.watch(kind)) {
                    watch.relist = true;
                    self.schedule_watch(process, kind);
                }
            }
            Action::Cut { process, kind, millis } => {
                if let Some(watch) = self.processes.get_mut(process).and_then(|one| one.watch(kind)) {
                    (watch.held_until, watch.was_held, watch.relist) = (now + millis, true, true);
                    self.schedule_watch(process, kind);
                }
            }
            Action::Double { process, kind } => {
                if let Some(watch) = self.processes.get_mut(process).and_then(|one| one.watch(kind)) {
                    watch.double = true;
                }
            }
            Action::Kill { process } => self.kill(process),
            Action::Pause { process, millis } => {
                if let Some(process) = self.processes.get_mut(process) {
                    process.paused_until = now + millis;
                }
            }
            Action::Net {
                process,
                fault,
                requests,
            } => {
                if let Some(process) = self.processes.get_mut(process) {
                    process.faults.extend(std::iter::repeat_n(fault, requests));
                }
            }
            Action::Jump { process, seconds } => {
                if let Some(process) = self.processes.get_mut(process) {
                    process.offset_millis = process.offset_millis.saturating_add(seconds * 1_000);
                }
            }
            Action::Driver { fault, calls } => {
                self.driver.faults.extend(std::iter::repeat_n(fault, calls));
            }
            action => self.act(action),
        }
    }

    /// Runs the steps that waited for this moment of a write to an object of this kind.
    pub(super) fn happen_around(&mut self, moment: Moment, kind: &str) {
        let is_due = |step: &Step| step.moment == moment && step.action.kind() == Some(kind);
        let due: Vec<Step> = self.armed.extract_if(.., |step| is_due(step)).collect();
        due.into_iter().for_each(|step| self.perform(step));
    }

    fn act(&mut self, action: Action) {
        self.always.acted(action, &self.world);
        for effect in user::effects(action, &self.world) {
            // A user whose command is refused reads the error, and continues.
            let _ = self.carry_out(Author::User, &effect);
        }
    }

    /// Faults stop: watches deliver, requests arrive, and everything paused continues.
    pub(super) fn become_calm(&mut self) {
        self.calm = true;
        self.armed.clear();
        self.driver.faults.clear();
        let now = self.world.now;
        self.trace.line(now, || "* faults stop".to_owned());
        for node in 0..crate::story::NODES.len() {
            self.act(Action::NodeBack { node });
            self.act(Action::Admit { node });
            self.act(Action::AddDriver { node });
            self.act(Action::FreeCapacity { node });
        }
        for process in &mut self.processes {
            process.faults.clear();
            process.paused_until = 0;
            for watch in &mut process.watches {
                watch.held_until = 0;
            }
        }
        // What was held back arrives now, not when it would have been released.
        let late: Vec<_> = self.events.keys().copied().filter(|(at, _)| *at > now).collect();
        for key in late {
            if matches!(self.events.get(&key), Some(Event::Watch { .. }))
                && let Some(event) = self.events.remove(&key)
            {
                self.at(now + 1, event);
            }
        }
    }
}
