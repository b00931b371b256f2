//! The check inside the write (D3).
//!
//! A precondition that is judged before the write and not in it lets two writers pass. So the write names the version
//! that was judged:
//!
//! ```sql
//! UPDATE documents SET body = $1, version = $2 WHERE id = $3 AND version = $4
//! ```
//!
//! and [`judge`] says what the number of affected rows means. Of two writers with the same `If-Match` one changes a row,
//! and the other one none, on Postgres, SQLite and MariaDB. Every write draws a new [`Version`], so an engine that does
//! not count rows which it leaves as they were counts these.
//!
//! Create-only (`If-None-Match: *`) is a plain `INSERT`: its unique violation is 412. Not an upsert, whose affected rows
//! do not tell an insert from an update on every engine.

use super::version::Version;

/// What became of a write that named a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    /// It is done.
    Ok,
    /// Nothing was written: the resource has this version by now.
    Stale(Version),
    /// Nothing was written: there is no such resource any more.
    Absent,
}

/// Judges a conditional write by the rows that it affected. `current` is read after a write that affected none, in the
/// same transaction; after any other it is not looked at.
#[must_use]
pub fn judge(rows: u64, current: Option<Version>) -> Written {
    match (rows, current) {
        (0, Some(version)) => Written::Stale(version),
        (0, None) => Written::Absent,
        _ => Written::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // D3
    #[test]
    fn rows_and_the_version_of_now_say_what_happened() {
        let version = Version::new();
        assert_eq!(judge(1, None), Written::Ok);
        assert_eq!(judge(1, Some(version)), Written::Ok);
        assert_eq!(judge(0, Some(version)), Written::Stale(version));
        assert_eq!(judge(0, None), Written::Absent);
    }
}
