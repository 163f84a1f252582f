//! Prints one line for each event of the cluster.

use super::{FIELD_MANAGER, Parts};
use crate::terminal::{Color, one_line};
use berth_cluster::field;
use berth_kube::api::Api;
use berth_kube::resource::{Resource, Whole};
use berth_kube::watch::{Change, Difference, Sink, watch_resource};
use berth_kube::{CancellationToken, Client};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use std::io::Write;

/// Starts printing the events since a time.
pub(super) fn start(client: &Client, since: Timestamp, color: Color, cancel: &CancellationToken, parts: &mut Parts) {
    let api = Api::new(client.clone(), FIELD_MANAGER);
    let cancel = cancel.clone();
    let teller = Teller { since, color };
    parts.spawn(async move {
        watch_resource(api, Resource::EVENTS, teller, cancel).await;
        Ok(())
    });
}

struct Teller {
    since: Timestamp,
    color: Color,
}

impl Sink<Whole> for Teller {
    async fn take(&mut self, difference: Difference<Whole>) -> bool {
        for change in difference.changes {
            if let Change::Applied(event) = change
                && self.is_news(&event.value)
                // Standard output was closed: no more lines, but the cluster keeps running.
                && self.line(&event.value).is_err()
            {
                break;
            }
        }
        true
    }
}

impl Teller {
    /// Whether an event is new: it happened after the start and was not printed yet.
    fn is_news(&self, event: &Value) -> bool {
        let time = field::time(event, "/lastTimestamp").or_else(|| field::time(event, "/eventTime"));
        // Event times are in whole seconds.
        let recent = time.is_none_or(|time| time.as_second() >= self.since.as_second());
        recent && field::count(event, "/count").unwrap_or(1) <= 1
    }

    fn line(&self, event: &Value) -> std::io::Result<()> {
        let time = field::time(event, "/lastTimestamp").unwrap_or_else(Timestamp::now);
        let time = time.to_zoned(TimeZone::UTC).strftime("%H:%M:%S");
        let about = |key: &str| field::text(event, &format!("/involvedObject/{key}"));
        let name = match about("namespace") {
            "" => about("name").to_owned(),
            namespace => format!("{namespace}/{}", about("name")),
        };
        let style = match field::text(event, "/type") {
            "Warning" => anstyle::AnsiColor::Yellow.on_default(),
            _ => anstyle::Style::new(),
        };
        let name = one_line(&name);
        let (kind, reason) = (one_line(about("kind")), one_line(field::text(event, "/reason")));
        // A message of several lines is still one event.
        let message = one_line(field::text(event, "/message"));
        let mut out = self.color.stdout();
        writeln!(out, "{time}  {style}{reason:<22}{style:#}  {kind} {name}: {message}")?;
        out.flush()
    }
}
