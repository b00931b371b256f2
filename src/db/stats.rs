//! What a look at a table counts, for all engines alike. Every count stops one row after what is asked for, so that a
//! table of any size costs the same; a count without an end reads the whole table.

use std::time::Duration;

use sqlx::{ColumnIndex, Decode, Row, Type};

use crate::store::{Count, KeyStats};

/// The limit of a statement that is to report at most so many: one more.
pub(crate) fn limit(most: u64) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1)
}

/// A number of a row. Statements give none that are negative, but clocks may be set back.
pub(crate) fn number<'r, R: Row>(row: &'r R, column: &'static str) -> Result<u64, sqlx::Error>
where
    i64: Decode<'r, R::Database> + Type<R::Database>,
    &'static str: ColumnIndex<R>,
{
    Ok(row.try_get::<i64, _>(column)?.try_into().unwrap_or_default())
}

/// The same where there may be none.
pub(crate) fn maybe<'r, R: Row>(row: &'r R, column: &'static str) -> Result<Option<u64>, sqlx::Error>
where
    i64: Decode<'r, R::Database> + Type<R::Database>,
    &'static str: ColumnIndex<R>,
{
    Ok(row.try_get::<Option<i64>, _>(column)?.map(|number| number.try_into().unwrap_or_default()))
}

#[allow(unnameable_types, reason = "part of the sealed trait `InboxDialect`")]
/// What all tables tell by these columns: `records`, `estimate`, `expired`, `overdue` (microseconds).
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// All rows.
    pub rows: Count,
    /// Those that wait for a purge.
    pub expired: Count,
    /// For how long the first of them has waited.
    pub overdue: Option<Duration>,
}

pub(crate) fn kept<'r, R: Row>(row: &'r R, most: u64) -> Result<Kept, sqlx::Error>
where
    i64: Decode<'r, R::Database> + Type<R::Database>,
    &'static str: ColumnIndex<R>,
{
    Ok(Kept {
        rows: Count::or_about(most, number(row, "records")?, maybe(row, "estimate")?),
        expired: Count::up_to(most, number(row, "expired")?),
        overdue: maybe(row, "overdue")?.map(Duration::from_micros),
    })
}

/// Records of a transactional store by the columns of [`kept`], `completed` and `orphaned`. The latter two hold of what
/// was read, so they say nothing where that was not the whole table. Nobody waits in such a store but by its own means.
pub(crate) fn keys<'r, R: Row>(row: &'r R, most: u64) -> Result<KeyStats, sqlx::Error>
where
    i64: Decode<'r, R::Database> + Type<R::Database>,
    &'static str: ColumnIndex<R>,
{
    let Kept { rows, expired, overdue } = kept(row, most)?;
    let mut stats = KeyStats { records: rows, expired, overdue, ..KeyStats::empty() };
    let whole = |column| {
        let counted = number(row, column)?;
        Ok::<_, sqlx::Error>(matches!(rows, Count::Exactly(_)).then_some(Count::Exactly(counted)))
    };
    stats.completed = whole("completed")?;
    stats.orphaned = whole("orphaned")?;
    Ok(stats)
}

/// Records of leases by the columns of [`kept`], `completed`, and of those without an answer, which an index leads to:
/// `open`, all of them, and `running`, `lapsed` and `unknown` among them.
pub(crate) fn leases<'r, R: Row>(row: &'r R, most: u64) -> Result<KeyStats, sqlx::Error>
where
    i64: Decode<'r, R::Database> + Type<R::Database>,
    &'static str: ColumnIndex<R>,
{
    let Kept { rows, expired, overdue } = kept(row, most)?;
    let all = number(row, "open")? <= most;
    let open = |column| {
        let counted = number(row, column)?;
        Ok::<_, sqlx::Error>(Some(if all { Count::Exactly(counted) } else { Count::AtLeast(counted) }))
    };
    let completed = number(row, "completed")?;
    Ok(KeyStats {
        records: rows,
        expired,
        overdue,
        running: open("running")?,
        lapsed: open("lapsed")?,
        unknown: open("unknown")?,
        completed: matches!(rows, Count::Exactly(_)).then_some(Count::Exactly(completed)),
        ..KeyStats::empty()
    })
}
