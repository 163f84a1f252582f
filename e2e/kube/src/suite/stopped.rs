//! A leader that is suspended for longer than its lease, and resumes in the middle of its work when another one leads.

use super::bindings::Bindings;
use super::faults::leader;
use super::report::Remark;
use super::scenario::Scenario;
use super::world::{Cast, World, election};
use anyhow::{Context as _, ensure};
use berth_e2e::audit::{self, Request};
use berth_e2e::components::Component;
use berth_e2e::wait::eventually;
use std::convert::Infallible;
use std::time::Duration;

/// Timeout for the other replica to lead: the lease lasts 15 s.
const TAKEOVER: Duration = Duration::from_secs(90);
/// Maximum number of late writes. Each write checks the clock first; what was between the clock and the socket when the process was
/// suspended is sent when it resumes, and is refused because of its version or does what was decided. Without the check there would
/// be as many as are in flight.
const MAX_LATE: usize = 3;

/// Scheduling continues with the other replica, and the first one writes nothing except what it had already sent.
pub(crate) async fn a_leader_is_stopped_and_continued(
    world: &mut World,
    scenario: &mut Scenario,
    load: &super::Load,
) -> anyhow::Result<Remark> {
    let component = Component::Scheduler;
    world.stop(component.command()).await;
    let (election, mut copies) = (election(), Vec::new());
    for copy in ["c", "d"] {
        let name = format!("{}-{copy}", component.account());
        let started = world.installation.start(&world.cluster, component, &name, &election);
        copies.push(started.await?);
    }
    let load = Bindings::start(scenario, load.pods).await?;
    let at = load.until(load.count / 10).await?;
    let first = leader(&world.kube, &component.account()).await?;
    let place = copies
        .iter()
        .position(|process| first.ends_with(&format!("_{}", process.id())));
    let mut stopped = copies.remove(place.with_context(|| format!("{first} leads, and is none of ours"))?);
    stopped.pause()?;
    let next = eventually("another copy leads", TAKEOVER, async || {
        let holder = leader(&world.kube, &component.account()).await;
        Ok::<_, Infallible>(holder.ok().filter(|holder| *holder != first))
    });
    let next = next.await;
    // Whatever the result: no suspended process is left behind.
    stopped.resume()?;
    next?;
    let ended = eventually("the first leader steps down", TAKEOVER, async || {
        Ok::<_, Infallible>(stopped.check().is_err().then_some(()))
    });
    ended.await?;
    let remark = load.recover(scenario, at).await?;
    for process in copies {
        process.stop().await;
    }
    let requests = audit::requests(&world.cluster.audit()).context("cannot read the audit log")?;
    world.cast(Cast::BERTH).await?;
    let late = late_writes(&requests, component)?;
    let done = late.iter().filter(|request| request.code < 300).count();
    ensure!(late.len() <= MAX_LATE, "late writes: {late:#?}");
    Ok(format!(
        "{} writes came late, {done} of them done; {remark}",
        late.len()
    ))
}

/// The writes of the previous leader, after the last change of leadership.
fn late_writes(requests: &[Request], component: Component) -> anyhow::Result<Vec<&Request>> {
    let (account, user) = (component.account(), format!(":{}", component.account()));
    let mut renewals: Vec<&Request> = requests
        .iter()
        .filter(|request| request.user.ends_with(&user) && request.resource == "leases" && request.name == account)
        .filter(|request| request.verb == "update" && request.code < 300)
        .collect();
    renewals.sort_by_key(|request| &request.received);
    let hands: Vec<&Request> = renewals
        .chunk_by(|a, b| a.credential == b.credential)
        .map(|term| term[0])
        .collect();
    let [.., before, takeover] = hands.as_slice() else {
        anyhow::bail!("the lease did not change hands: {} terms", hands.len());
    };
    let writes = |request: &&Request| {
        request.credential == before.credential
            && request.received > takeover.received
            && !matches!(request.verb.as_str(), "get" | "list" | "watch")
            && !matches!(request.resource.as_str(), "leases" | "events")
    };
    Ok(requests.iter().filter(writes).collect())
}
