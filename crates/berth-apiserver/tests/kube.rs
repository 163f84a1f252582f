//! The suite through kube-rs. By default each case has its own server in this process; with `BERTH_SUITE_KUBECONFIG`
//! set to a file, the same cases run against the API server of that kubeconfig.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod suite;

use berth_apiserver::Server;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

async fn client() -> Client {
    if let Ok(path) = std::env::var("BERTH_SUITE_KUBECONFIG") {
        let kubeconfig = Kubeconfig::read_from(path).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .unwrap();
        // A refused eviction is an expected response here, not a reason to retry.
        config.default_retry = false;
        return Client::try_from(config).unwrap();
    }
    let server = Server::builder().build().unwrap();
    Client::new(server.service(), "default")
}

macro_rules! cases {
    ($($module:ident { $($case:ident),* $(,)? })*) => {$(
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::suite::$module::$case(crate::client().await).await;
                }
            )*
        }
    )*};
}

cases! {
    objects {
        an_object_is_created_read_changed_and_deleted,
        names_are_made_up_and_unique,
        a_stale_update_is_refused,
        an_update_without_a_version_goes_through,
        nothing_changes_when_nothing_changes,
        a_dry_run_leaves_no_trace,
        what_is_missing_is_not_found,
        generations_count_what_was_asked_for,
        only_one_of_many_creators_wins,
        no_increment_is_lost,
    }
    watches {
        no_event_is_lost_or_doubled_under_eight_writers,
        a_watch_starts_with_the_present_state,
        a_selection_is_entered_and_left,
        a_streamed_list_marks_its_end,
        a_reflector_ends_up_with_the_same_state,
        metadata_can_be_watched_alone,
    }
    lists {
        pages_show_one_version_while_writes_go_on,
        pages_go_with_selectors,
        labels_select,
        fields_select,
        an_old_version_can_be_listed,
        a_collection_is_deleted_by_label,
    }
    patches {
        a_merge_patch_sets_and_removes,
        a_json_patch_tests_and_replaces,
        a_strategic_patch_merges_lists_by_key,
        an_apply_creates_changes_and_takes_back,
        two_appliers_conflict_until_one_forces,
        unknown_fields_are_refused_when_asked,
    }
    deletion {
        finalizers_hold_an_object,
        preconditions_protect,
        dependents_go_in_the_background,
        dependents_go_first_in_the_foreground,
        a_circle_of_owners_goes_in_the_foreground_too,
        pods_leave_a_namespace_first,
        orphans_stay,
        an_object_stays_as_long_as_one_owner_does,
        a_pod_on_a_node_gets_its_grace,
        a_namespace_takes_its_content_along,
    }
    pods {
        defaults_are_filled_in,
        a_binding_places_a_pod_once,
        the_status_is_apart,
        the_spec_is_fixed,
        a_bad_pod_names_its_fields,
        an_eviction_respects_the_budget,
        priorities_come_from_their_class,
        inline_volumes_keep_their_size,
        limit_ranges_complete_and_refuse,
        runtime_classes_give_overhead,
    }
    volumes {
        classes_have_defaults_and_are_fixed,
        volumes_have_defaults_and_protection,
        a_volumes_source_and_place_are_fixed,
        claims_get_the_default_class,
        a_claims_spec_is_fixed_but_for_its_volume,
        a_claim_grows_if_its_class_says_so,
        bad_volumes_and_claims_name_their_fields,
        a_driver_publishes_its_pools,
    }
    kinds {
        events_read_the_same_in_both_groups,
        a_deployment_scales,
        a_custom_resource_is_served_by_its_definition,
        leases_are_taken_over,
        devices_are_offered_and_claimed,
    }
}

macro_rules! stories {
    ($($story:ident),* $(,)?) => {
        mod stories {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $story() {
                    crate::suite::stories::play(crate::client().await, stringify!($story)).await;
                }
            )*
        }
    };
}

stories! {
    claims,
    cluster,
    completion,
    definitions,
    pods,
    requests,
    schemas,
    services,
    storage,
    stored,
    volumes,
    workloads,
}
