//! Processes: they start, take turns, run jobs, and die.

use super::{Event, Life, Simulator};
use crate::chance::mix;
use crate::component::{Component, Finished, JobId, Turn};
use crate::process::Running;
use crate::world::wall;
use std::task::Poll;

impl Simulator {
    /// Starts a process, or first lets it compete for its lease.
    pub(super) fn start(&mut self, life: Life) {
        let (now, jitter, mutation) = (self.world.now, self.jitter, self.mutation);
        let Some(process) = self.living(life) else {
            return;
        };
        if process.role.election().is_some() && process.renewed.is_none() {
            self.at(now, Event::Lease(life));
            return;
        }
        process.start(mix(&[jitter, life.process as u64]), now, mutation);
        let kinds: Vec<usize> = process.watches.iter().map(|watch| watch.kind).collect();
        for kind in kinds {
            self.schedule_watch(life.process, kind);
        }
    }

    /// Kills a process. It is restarted soon.
    pub(super) fn kill(&mut self, number: usize) {
        let (now, jitter) = (self.world.now, self.jitter);
        if let Some(process) = self.processes.get_mut(number) {
            process.die();
            let after = 100 + mix(&[jitter, 5, number as u64, process.incarnation]) % 3_000;
            let life = Life::of(process);
            self.at(now + after, Event::Start(life));
        }
    }

    /// The time has come at which a process asked to be woken.
    pub(super) fn wake(&mut self, life: Life) {
        if let Some(process) = self.living(life) {
            process.woken_at = None;
            self.turn(life, |_, _| {});
        }
    }

    /// Gives a component a turn, and starts its jobs.
    pub(super) fn turn(&mut self, life: Life, act: impl FnOnce(&mut dyn Component, &mut Turn)) {
        let (now, mutation) = (self.world.now, self.mutation);
        let Some(process) = self.living(life) else {
            return;
        };
        let Some(mut component) = process.component.take() else {
            return;
        };
        let mut turn = Turn {
            now,
            wall: wall(now, process.offset_millis),
            complete: process.is_complete(),
            next_job: process.next_job,
            mutation,
            spawned: Vec::new(),
            decided: Vec::new(),
        };
        act(component.as_mut(), &mut turn);
        component.run(&mut turn);
        let wake = component.wake();
        process.component = Some(component);
        process.next_job = turn.next_job;
        if let Some(wake) = wake.map(|wake| wake.max(now + 1))
            && process.woken_at.is_none_or(|woken| wake < woken)
        {
            process.woken_at = Some(wake);
            self.at(wake, Event::Wake(life));
        }
        for effect in &turn.decided {
            if let Some(process) = self.processes.get(life.process)
                && let Err(why) = self.always.decided(process, effect, &self.world)
            {
                self.fail(why);
            }
        }
        for (id, job) in turn.spawned {
            if let Some(process) = self.living(life) {
                process.jobs.insert(id, Running { job, since: now });
            }
            self.go_on(life, id);
        }
    }

    /// Runs a job until it sends a request, or is done.
    pub(super) fn go_on(&mut self, life: Life, id: JobId) {
        let Some(running) = self.living(life).and_then(|process| process.jobs.get_mut(&id)) else {
            return;
        };
        match running.job.go_on() {
            Poll::Ready(finished) => self.finish(life, id, finished),
            Poll::Pending => {
                if let Some(request) = running.job.port.take_request() {
                    self.send(life, id, request);
                }
            }
        }
    }

    fn finish(&mut self, life: Life, id: JobId, finished: Finished) {
        if let Some(process) = self.living(life) {
            process.jobs.remove(&id);
        }
        self.turn(life, |component, turn| component.finish(id, finished, turn));
    }
}
