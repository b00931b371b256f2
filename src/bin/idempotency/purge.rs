//! What has expired goes.

use idempotency::store::Purge;

use crate::arguments::Arguments;
use crate::confirm::confirmed;
use crate::failure::Failure;
use crate::place::Place;
use crate::progress;

pub(crate) async fn purge(place: &Place, arguments: &Arguments, batch: u32) -> Result<(), Failure> {
    confirmed(arguments, "Delete every record that has expired?")?;
    let progress = progress::counting(arguments, "records deleted");
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
