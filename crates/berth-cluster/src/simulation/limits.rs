//! Publishes the remaining space of built-in pools with a limit, as the provisioners of a live cluster do.

use super::Simulation;
use berth_core::effect::{Effect, Refusal};
use berth_provisioner::capacity::{Publication, Publisher, Question};

impl Simulation {
    /// Answers the publisher's questions and carries out its writes. Returns whether anything was written.
    pub(super) fn announce_limits(&mut self) -> bool {
        let Some(mut publisher) = self.provisioners.publisher.take() else {
            return false;
        };
        let before = self.cluster.version();
        publisher.refresh_segments(&self.provisioners.state);
        loop {
            self.answer_questions(&mut publisher);
            let Some(write) = publisher.next_write() else {
                break;
            };
            let written = self.write_capacity(&write.publication);
            publisher.written(&write.subject, write.item.as_ref(), written, self.since_start());
        }
        self.provisioners.publisher = Some(publisher);
        self.cluster.version() > before
    }

    fn answer_questions(&self, publisher: &mut Publisher) {
        let (now, run) = (self.since_start(), &self.provisioners);
        while let Some(Question { driver, query }) = publisher.next_question(now) {
            let class = run.state.class(&query.item.class);
            // A class with an invalid limit provisions nothing, and reports it on a request.
            let answer = class.and_then(|class| run.builtin.capacity(class, &query.item.segment).ok());
            publisher.answered(&driver, &query.item, answer, now, self.now);
        }
    }

    fn write_capacity(&mut self, publication: &Publication) -> bool {
        let (Publication::Effect(effect) | Publication::Announce { pool: effect, .. }) = publication else {
            // The pools of built-in provisioners are in the status of their driver.
            return false;
        };
        let mut refused = self.write_one(effect);
        if let Some(missing) = refused.as_ref().and_then(|refusal| publication.missing(refusal)) {
            self.write_one(&missing);
            refused = self.write_one(effect);
        }
        refused.is_none()
    }

    fn write_one(&mut self, effect: &Effect) -> Option<Refusal> {
        self.carry_out(std::slice::from_ref(effect)).refused
    }
}
