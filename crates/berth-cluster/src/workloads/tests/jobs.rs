//! Stories of Jobs.

use super::*;

fn job(spec: Value) -> Value {
    let mut job = workload("Job", "sum", json!({"template": {"spec": {"restartPolicy": "Never"}}}));
    field::unset(&mut job, &["spec", "selector"]);
    field::merge(&mut job, &json!({ "spec": spec }));
    job
}

#[test]
fn pods_run_so_many_at_a_time_until_enough_have_succeeded() {
    let mut story = Story::with_nodes(2);
    story.create(job(json!({"parallelism": 2, "completions": 5})));
    story.control();
    assert_eq!(story.pods().len(), 2);
    story.settle();
    assert_eq!(story.pods().iter().filter(|pod| pod.ends_with("Succeeded")).count(), 5);
    assert_eq!(story.pods().len(), 5);
    let job = story.get("Job", "sum");
    assert_eq!(job["status"]["succeeded"], 5);
    assert!(job["status"]["active"].is_null());
    assert!(crate::status::holds(job, "Complete"));
    assert_eq!(job["status"]["completionTime"], "2026-01-01T00:00:00Z");
    let pod = story.cluster.objects().of_kind("Pod").next().unwrap();
    assert_eq!(field::label(pod, names::JOB_NAME), "sum");
    assert!(story.messages().contains(&"Completed Job completed".to_owned()));
}

#[test]
fn pods_run_for_as_long_as_the_template_says() {
    let mut story = Story::with_nodes(1);
    story.create(job(
        json!({"completions": 2, "template": {"metadata": {"annotations": {names::RUN_SECONDS: "90"}}}}),
    ));
    story.settle();
    assert_eq!(
        story.get("Job", "sum")["status"]["completionTime"],
        "2026-01-01T00:03:00Z"
    );
}

#[test]
fn an_indexed_job_gives_each_pod_its_index() {
    let mut story = Story::with_nodes(1);
    story.create(job(
        json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed"}),
    ));
    story.settle();
    assert_eq!(story.get("Job", "sum")["status"]["completedIndexes"], "0-2");
    let names = story.names("Pod");
    assert!(
        names
            .iter()
            .zip(0..)
            .all(|(name, index)| name.starts_with(&format!("sum-{index}-"))),
        "{names:?}"
    );
}

#[test]
fn failures_are_retried_later_and_later_up_to_the_limit() {
    let mut story = Story::with_nodes(1);
    story.create(job(
        json!({"backoffLimit": 2, "template": {"metadata": {"annotations": {names::EXIT_CODE: "1"}}}}),
    ));
    story.settle();
    let job = story.get("Job", "sum");
    assert_eq!(job["status"]["failed"], 3);
    assert_eq!(
        crate::status::find(job, "Failed").unwrap()["reason"],
        "BackoffLimitExceeded"
    );
    assert_eq!(
        field::seconds(story.now),
        "2026-01-01T00:00:30Z",
        "10 seconds after the first and 20 after the second"
    );
}

#[test]
fn suspension_and_deadlines_stop_pods() {
    let mut story = Story::with_nodes(1);
    let annotations = json!({names::RUN_SECONDS: "1000"});
    story.create(job(
        json!({"suspend": true, "activeDeadlineSeconds": 100, "template": {"metadata": {"annotations": annotations}}}),
    ));
    story.settle();
    assert_eq!(story.pods(), [""; 0]);
    story.patch("Job", "sum", json!({"spec": {"suspend": false}}));
    story.control();
    assert_eq!(story.pods().len(), 1);
    story.settle();
    assert_eq!(story.pods(), [""; 0]);
    assert_eq!(
        crate::status::find(story.get("Job", "sum"), "Failed").unwrap()["reason"],
        "DeadlineExceeded"
    );
}

#[test]
fn a_finished_job_goes_when_its_time_is_over() {
    let mut story = Story::with_nodes(1);
    story.create(job(json!({"ttlSecondsAfterFinished": 60})));
    story.settle();
    assert!(story.find("Job", "sum").is_none() && story.pods().is_empty());
}

#[test]
fn work_that_was_done_stays_done_when_its_pod_is_deleted() {
    let mut story = Story::with_nodes(1);
    story.create(job(json!({"completions": 2})));
    for _ in 0..3 {
        story.round();
    }
    let done = story.pods().into_iter().find(|pod| pod.ends_with("Succeeded")).unwrap();
    story.delete("Pod", done.split(' ').next().unwrap());
    story.settle();
    assert_eq!(story.get("Job", "sum")["status"]["succeeded"], 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Never more pods at once than allowed, never more successes than requested, and a second step adds nothing.
    #[test]
    fn limits_are_kept(parallelism in 0..5_i64, completions in 1..8_i64, actions in proptest::collection::vec(0..4_u8, 1..30)) {
        let mut story = Story::with_nodes(2);
        story.create(job(json!({"parallelism": parallelism, "completions": completions, "template": {"metadata": {"annotations": {names::RUN_SECONDS: "5"}}}})));
        for action in actions {
            match action {
                0 => { story.run_agents(); }
                1 => story.schedule(),
                2 => story.now = field::after(story.now, 3),
                _ => {
                    let names = story.names("Pod");
                    if let Some(name) = names.first().map(|name| (*name).to_owned()) {
                        story.delete("Pod", &name);
                    }
                }
            }
            story.control();
            prop_assert!(story.is_settled());
            let active = story.cluster.objects().of_kind("Pod").filter(|pod| !pods::is_over(pod)).count() as i64;
            prop_assert!(active <= parallelism);
        }
    }
}
