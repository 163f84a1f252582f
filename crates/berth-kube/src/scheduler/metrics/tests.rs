//! What is counted when.

use super::*;
use berth_scheduler::scheduler::{DEFAULT_SCHEDULER_NAME, PodRef};
use serde_json::json;

fn told(outcome: Outcome) -> Effect {
    Effect::Event {
        pod: PodRef {
            key: "default/p".into(),
            uid: "u".to_owned(),
        },
        source: "default-scheduler".to_owned(),
        outcome,
        message: "in words".to_owned(),
    }
}

fn ledger() -> Ledger {
    let mut ledger = Ledger::new(Metrics::default());
    let profiles = BTreeMap::from([(DEFAULT_SCHEDULER_NAME.to_owned(), Profile::default())]);
    let metadata = json!({"name": "p", "namespace": "default", "uid": "u"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}});
    ledger.seen(&Object::decode(&pod).unwrap().unwrap(), &profiles, true);
    ledger
}

fn text(ledger: &Ledger) -> String {
    let mut registry = Registry::default();
    ledger.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

#[test]
fn only_failures_of_volumes_are_errors_of_volumes() {
    let mut ledger = ledger();
    for stage in [
        FailedStage::BindPod,
        FailedStage::BindPodInDoubt,
        FailedStage::NodeGone,
        FailedStage::AssumeVolumes,
        FailedStage::BindVolumes,
        FailedStage::Decision,
    ] {
        ledger.saw(&[told(Outcome::Failed(stage))], Counts::default(), "Written");
    }
    let text = text(&ledger);
    let count = |operation: &str, count: u32| {
        let line = format!("scheduler_volume_scheduling_stage_error_total{{operation=\"{operation}\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    };
    count("assume", 1);
    count("bind", 1);
    assert!(
        text.contains("result=\"error\",profile=\"default-scheduler\"} 6\n"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_measured_from_its_decision() {
    let mut ledger = ledger();
    let second = Duration::from_secs(1);
    tokio::time::advance(100 * second).await;
    ledger.decided(Some(&"default/p".into()), Instant::now());
    let mut refused = Counts::default();
    refused.unschedulable = 1;
    ledger.saw(&[told(Outcome::Unschedulable)], refused, "ScheduleAttempt");
    tokio::time::advance(100 * second).await;
    ledger.decided(Some(&"default/p".into()), Instant::now());
    tokio::time::advance(3 * second).await;
    ledger.saw(&[told(Outcome::Scheduled)], refused, "Written");
    let text = text(&ledger);
    let sum = |result: &str, sum: &str| {
        let name = "scheduler_scheduling_attempt_duration_seconds_sum";
        let line = format!("{name}{{result=\"{result}\",profile=\"default-scheduler\"}} {sum}\n");
        assert!(text.contains(&line), "{line}{text}");
    };
    sum("unschedulable", "0.0");
    sum("scheduled", "3.0");
    assert!(
        text.contains("scheduler_pod_scheduling_sli_duration_seconds_sum{attempts=\"2\"} 203.0\n"),
        "{text}"
    );
    assert!(text.contains("scheduler_preemption_attempts_total 1\n"), "{text}");
}
