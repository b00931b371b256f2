//! What has expired goes.

use idempotency::store::Purge;
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::Arguments;
use crate::confirm::confirmed;
use crate::failure::Failure;
use crate::place::Place;

pub(crate) async fn purge(place: &Place, arguments: &Arguments, batch: u32) -> Result<(), Failure> {
    confirmed(arguments, "Delete every record that has expired?")?;
    let progress = if arguments.json { ProgressBar::hidden() } else { bar() };
    let mut deleted = 0;
    loop {
        let now = place.store.purge(batch).await?;
        deleted += now;
        progress.inc(now);
        // What expires meanwhile is for the next run.
        if now < u64::from(batch) {
            break;
        }
    }
    progress.finish_and_clear();
    if arguments.json {
        println!("{}", serde_json::json!({ "deleted": deleted }));
    } else {
        println!("{deleted} records deleted");
    }
    if deleted == 0 { Err(Failure::NothingMatched) } else { Ok(()) }
}

/// How many there are is not known before.
fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {pos} records deleted, {per_sec}, {elapsed}");
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}
