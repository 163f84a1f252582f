//! Requests: they arrive, are carried out and answered, or fail on the way.

use super::{Author, Event, Life, Simulator};
use crate::component::JobId;
use crate::mutation::Mutation;
use crate::port::{ApiError, Reply, Request};
use crate::story::{Moment, NetFault, PROCESSES};
use crate::world::{Millis, latency};
use berth_core::effect::{Effect, Fact, Refusal};

/// Timeout of a request without a response.
const PATIENCE: Millis = 3_000;

impl Simulator {
    /// Sends a request, unless its sender knows that it may not.
    pub(super) fn send(&mut self, life: Life, job: JobId, request: Request) {
        let (now, jitter) = (self.world.now, self.jitter);
        let leads_for_ever = self.mutation == Some(Mutation::LeaderStays);
        if let Request::Sleep(millis) = request {
            let reply = Reply::Holds(Ok(true));
            self.at(now + millis, Event::Reply { life, job, reply });
            return;
        }
        let Some(process) = self.living(life) else {
            return;
        };
        let is_api = !matches!(request, Request::CreateVolume(_) | Request::DeleteVolume(_));
        if is_api && !process.is_leading(now) && !leads_for_ever {
            let reply = failed(&request, ApiError::NotLeading);
            self.at(now + 1, Event::Reply { life, job, reply });
            return;
        }
        process.requests += 1;
        let fault = process.faults.pop_front().filter(|_| is_api);
        let mut delay = latency(&[jitter, 2, life.process as u64, process.requests]);
        if fault == Some(NetFault::Late) {
            delay += 2_500;
        }
        let request = Box::new(request);
        let event = Event::Arrive {
            life,
            job,
            request,
            fault,
        };
        self.at(now + delay, event);
    }

    /// A request arrives. It is carried out even if its sender is dead.
    pub(super) fn arrive(&mut self, life: Life, job: JobId, request: &Request, fault: Option<NetFault>) {
        let now = self.world.now;
        let running = self.living(life).and_then(|process| process.jobs.get(&job));
        let since = running.map_or(now, |running| running.since);
        let (reply, after) = self.serve(life.process, request, fault, since);
        let delay = after + latency(&[self.jitter, 3, life.process as u64, job, now]);
        self.at(now + delay, Event::Reply { life, job, reply });
    }

    /// A response arrives.
    pub(super) fn replied(&mut self, life: Life, job: JobId, reply: Reply) {
        if let Some(running) = self.living(life).and_then(|process| process.jobs.get(&job)) {
            running.job.port.reply(reply);
            self.go_on(life, job);
        }
    }

    /// How a request is handled, and the additional delay of its response.
    fn serve(&mut self, number: usize, request: &Request, fault: Option<NetFault>, since: Millis) -> (Reply, Millis) {
        let failed = |error| failed(request, error);
        match fault {
            Some(NetFault::LostBefore) => return (failed(ApiError::InDoubt), PATIENCE),
            Some(NetFault::Busy) => return (failed(ApiError::Busy), 0),
            Some(NetFault::Conflict) => {
                if let Request::Write(effect) = request
                    && let Some(key) = effect.writes_to().filter(|_| !matches!(effect, Effect::Create(_)))
                {
                    return (failed(ApiError::Refused(Refusal::Conflict(key))), 0);
                }
            }
            Some(NetFault::LostAfter | NetFault::Failed | NetFault::Late) | None => {}
        }
        let (reply, after) = self.answer(number, request, since);
        match fault {
            Some(NetFault::LostAfter) => (failed(ApiError::InDoubt), PATIENCE),
            Some(NetFault::Failed) => (failed(ApiError::InDoubt), 0),
            _ => (reply, after),
        }
    }

    fn answer(&mut self, number: usize, request: &Request, since: Millis) -> (Reply, Millis) {
        match request {
            Request::Read(key) => (Reply::Object(Ok(self.world.find(key).cloned())), 0),
            Request::Holds(Fact::ClaimUnused { claim }) if self.mutation == Some(Mutation::ShutDownPodsUse) => {
                let mut pods = self.world.of_kind("Pod");
                let used = pods.any(|pod| {
                    !pod.text("/spec/nodeName").is_empty()
                        && berth_cluster::objects::claims_of(&pod.value).any(|name| name == claim.name)
                });
                (Reply::Holds(Ok(!used)), 0)
            }
            Request::Holds(fact) => {
                let (done, _) = self.world.carry_out(&Effect::Confirm(fact.clone()));
                (Reply::Holds(Ok(done.is_ok())), 0)
            }
            Request::Write(effect) => {
                if let Some(successor) = self.successor_of(number) {
                    let name = PROCESSES.get(number).copied().unwrap_or_default();
                    self.fail(format!("{name} writes though {successor} leads"));
                }
                let key = effect.writes_to();
                let kind = key.as_ref().map_or("", |key| &*key.kind).to_owned();
                self.happen_around(Moment::BeforeWrite { process: number }, &kind);
                let reply = match self.carry_out(Author::Process(number), effect) {
                    Ok(()) => Ok(key.and_then(|key| self.world.find(&key).cloned())),
                    Err(refusal) => Err(ApiError::Refused(refusal)),
                };
                self.happen_around(Moment::AfterWrite { process: number }, &kind);
                (Reply::Object(reply), 0)
            }
            Request::Sleep(_) => (Reply::Holds(Ok(true)), 0),
            Request::CreateVolume(request) => {
                let called = self.driver.create(request);
                self.trace.line(self.world.now, || {
                    let outcome = match &called.answer {
                        Ok(_) => "made".to_owned(),
                        Err(failure) => format!("{:?}: {failure}", failure.kind),
                    };
                    format!("driver: create {}: {outcome}", request.name)
                });
                (Reply::Volume(called.answer), called.extra_millis)
            }
            Request::DeleteVolume(handle) => {
                if let Err(why) = self.always.data_deleted(handle, since, &self.world) {
                    self.fail(why);
                }
                let called = self.driver.delete(handle);
                self.trace.line(self.world.now, || {
                    format!("driver: delete {handle}: {:?}", called.answer)
                });
                (Reply::Deleted(called.answer), called.extra_millis)
            }
        }
    }

    /// Carries out one write, checks the invariants, and notifies the watches.
    pub(super) fn carry_out(&mut self, author: Author, effect: &Effect) -> Result<(), Refusal> {
        let (done, entries) = self.world.carry_out(effect);
        let who = match author {
            Author::User => "user",
            Author::Process(number) => PROCESSES.get(number).copied().unwrap_or_default(),
        };
        self.trace.write(self.world.now, who, effect, &done, &entries);
        if let Author::Process(number) = author
            && let Some(process) = self.processes.get(number)
            && let Err(why) = self.always.written(process, effect, &done, &self.world)
        {
            self.fail(why);
        }
        for entry in &entries {
            if let Err(why) = self.always.changed(author, entry, &self.world) {
                self.fail(why);
            }
        }
        if !entries.is_empty() {
            self.changed_at = self.world.now;
        }
        self.notify(&entries);
        done
    }
}

/// The response to a failed request.
fn failed(request: &Request, error: ApiError) -> Reply {
    match request {
        Request::Holds(_) => Reply::Holds(Err(error)),
        _ => Reply::Object(Err(error)),
    }
}
