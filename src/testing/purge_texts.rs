//! The texts of purges, for tests of how a server goes about them: those that a [`Purger`](crate::purge::Purger) sends, with
//! tables that the search path finds. In the order keys, leases, marks of an inbox, its failures, dead letters.

/// Parameters: `$1` limit, `$2` the retention of dead letters in microseconds.
#[cfg(feature = "postgres")]
#[must_use]
pub fn postgres() -> Vec<String> {
    crate::db::postgres::purge::TEXTS.iter().map(|text| text.replace("{schema}", "")).collect()
}

/// What finds and locks the rows. Parameters: at the end the limit; before it, for dead letters, twice their retention in
/// microseconds.
#[cfg(feature = "mysql")]
#[must_use]
pub fn mysql() -> Vec<String> {
    crate::db::mysql::purge::TEXTS.iter().map(|text| text.replace("{schema}", "")).collect()
}
