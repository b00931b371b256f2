//! SQL texts with something in them that is not constant: the schema, or a number that no engine takes as a parameter.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

#[cfg(any(feature = "postgres", feature = "mysql"))]
/// Stands for the schema's quoted name and its dot, or for nothing.
const PLACEHOLDER: &str = "{schema}";
#[cfg(any(feature = "postgres", feature = "mysql"))]
/// Stands for the schema's quoted name alone.
const NAME_PLACEHOLDER: &str = "{schema_name}";

#[cfg(any(feature = "postgres", feature = "mysql"))]
/// A text for the tables of one schema. Expanded once, when a store is built.
pub(crate) fn expand(template: &'static str, schema: Option<&SchemaName>) -> SqlStr {
    let name = schema.map(SchemaName::quoted).unwrap_or_default();
    let prefix = if name.is_empty() { String::new() } else { format!("{name}.") };
    // Constants of this crate and a quoted identifier: nothing of a request can enter here.
    AssertSqlSafe(template.replace(NAME_PLACEHOLDER, &name).replace(PLACEHOLDER, &prefix)).into_sql_str()
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
/// The name of a schema, of any characters a database accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchemaName {
    name: String,
    quote: char,
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl SchemaName {
    /// Of Postgres. `None` for what no identifier can be: empty, longer than 63 bytes, or with a NUL.
    #[cfg(feature = "postgres")]
    pub(crate) fn new(name: &str) -> Option<Self> {
        (1..=63).contains(&name.len()).then_some(())?;
        Self::quoted_by(name, '"')
    }

    /// Of MySQL, where a schema is a database. `None` for what no identifier can be: empty, longer than 64 characters,
    /// or with a NUL.
    #[cfg(feature = "mysql")]
    pub(crate) fn mysql(name: &str) -> Option<Self> {
        (1..=64).contains(&name.chars().count()).then_some(())?;
        Self::quoted_by(name, '`')
    }

    fn quoted_by(name: &str, quote: char) -> Option<Self> {
        (!name.contains('\0')).then(|| Self { name: name.to_owned(), quote })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }

    fn quoted(&self) -> String {
        let quote = self.quote;
        format!("{quote}{}{quote}", self.name.replace(quote, &format!("{quote}{quote}")))
    }
}

/// The hexadecimal digits of some bytes, and so nothing else, whatever the bytes are.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hex(String);

#[cfg(any(feature = "mysql", feature = "sqlite"))]
impl Hex {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        use std::fmt::Write;
        let mut digits = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            // Writing to a string does not fail.
            let _ = write!(digits, "{byte:02x}");
        }
        Self(digits)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text for the tables of one schema of MySQL, whose `{no_wait}` is a prefix where the engine has one.
#[cfg(feature = "mysql")]
pub(crate) fn mysql_no_wait(template: &'static str, schema: &SchemaName, prefix: &'static str) -> SqlStr {
    AssertSqlSafe(expand(template, Some(schema)).as_str().replace("{no_wait}", prefix)).into_sql_str()
}

/// Ends another session of MySQL, by its number.
#[cfg(feature = "mysql")]
pub(crate) fn mysql_kill(session: u64) -> SqlStr {
    AssertSqlSafe(super::mysql::sql::KILL_OTHER.replace("{id}", &session.to_string())).into_sql_str()
}

/// A packet of statements of MySQL for one claim: its named lock, where it has one, its mark, and how long its session may
/// be idle.
#[cfg(feature = "mysql")]
pub(crate) fn mysql_packet(
    template: &'static str,
    lock: Option<&Hex>,
    mark: &Hex,
    idle: Option<std::time::Duration>,
) -> SqlStr {
    use super::mysql::sql::{BOUND, GET_LOCK, RELEASE_LOCK, UNBOUND};
    let (bound, unbound) = match idle {
        // Whole seconds, and at most a year, which is as long as the server takes.
        Some(idle) => (BOUND.replace("{seconds}", &idle.as_secs().clamp(1, 31_536_000).to_string()), UNBOUND),
        None => (String::new(), ""),
    };
    let (get, release) = match lock {
        Some(lock) => (GET_LOCK.replace("{lock}", &lock.0), RELEASE_LOCK.replace("{lock}", &lock.0)),
        None => (String::new(), String::new()),
    };
    let text = template.replace("{get_lock}", &get).replace("{release_lock}", &release).replace("{mark}", &mark.0);
    let text = text.replace("{bound}", &bound).replace("{unbound}", unbound);
    AssertSqlSafe(text).into_sql_str()
}

/// Gives a SQLite connection its own wait back.
#[cfg(feature = "sqlite")]
pub(crate) fn busy_timeout(milliseconds: u32) -> SqlStr {
    AssertSqlSafe(format!("PRAGMA busy_timeout = {milliseconds}")).into_sql_str()
}

/// A SQLite transaction as deep as sqlx believes a connection to be, by the names that sqlx rolls back to.
#[cfg(feature = "sqlite")]
pub(crate) fn sqlite_depth(depth: usize) -> SqlStr {
    let savepoints: String = (1..depth).map(|level| format!("; SAVEPOINT _sqlx_savepoint_{level}")).collect();
    AssertSqlSafe(format!("BEGIN{savepoints}")).into_sql_str()
}

/// A text whose `{parts}` are as many repetitions of one part.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn repeated(template: &SqlStr, part: &str, separator: &'static str, count: usize) -> SqlStr {
    // A text of this crate, and parts that hold nothing but places for parameters.
    AssertSqlSafe(template.as_str().replace("{parts}", &vec![part; count].join(separator))).into_sql_str()
}

/// An array of Postgres as it stands in a text: of numbers or ids, and so of nothing but digits, commas and hyphens.
#[cfg(feature = "postgres")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Array(String);

#[cfg(feature = "postgres")]
impl Array {
    pub(crate) fn of_numbers(numbers: impl IntoIterator<Item = i64>) -> Self {
        Self::of(numbers.into_iter().map(|number| number.to_string()))
    }

    pub(crate) fn of_ids(ids: impl IntoIterator<Item = uuid::Uuid>) -> Self {
        Self::of(ids.into_iter().map(|id| id.to_string()))
    }

    fn of(items: impl Iterator<Item = String>) -> Self {
        Self(format!("{{{}}}", items.collect::<Vec<_>>().join(",")))
    }
}

/// A text whose `{array_1}`, `{array_2}` … are these arrays: for the simple protocol, in which a statement is one message and
/// is planned each time.
#[cfg(feature = "postgres")]
pub(crate) fn with_arrays(template: &SqlStr, arrays: &[Array]) -> SqlStr {
    let mut text = template.as_str().to_owned();
    for (number, array) in (1..).zip(arrays) {
        text = text.replace(&format!("{{array_{number}}}"), &array.0);
    }
    AssertSqlSafe(text).into_sql_str()
}

/// A text for Postgres in one message, without just-in-time compilation. The planner does not know how few rows a look at
/// pending events ends with: of a long table it would compile for 200 ms, each time, what takes one.
#[cfg(feature = "postgres")]
pub(crate) fn uncompiled(text: &SqlStr) -> SqlStr {
    // Statements of one message are one transaction.
    AssertSqlSafe(format!("SET LOCAL jit = off; {}", text.as_str())).into_sql_str()
}

/// A text that shows the plan of another one.
#[cfg(any(feature = "testing", all(test, feature = "sqlite")))]
pub(crate) fn explained(explain: &'static str, text: &SqlStr) -> SqlStr {
    AssertSqlSafe(format!("{explain} {}", text.as_str())).into_sql_str()
}

#[cfg(test)]
mod tests {
    #[allow(unused_imports)]
    use super::*;

    // S30, H8
    #[cfg(feature = "postgres")]
    #[test]
    fn a_schema_name_is_quoted_whatever_it_holds() {
        let schema = SchemaName::new(r#"a"; DROP TABLE x; --"#).unwrap();
        assert_eq!(
            expand("SELECT 1 FROM {schema}t", Some(&schema)).as_str(),
            r#"SELECT 1 FROM "a""; DROP TABLE x; --".t"#
        );
        assert_eq!(expand("SELECT 1 FROM {schema}t", None).as_str(), "SELECT 1 FROM t");
        assert!(SchemaName::new("").is_none());
        assert!(SchemaName::new(&"s".repeat(64)).is_none());
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn an_array_holds_nothing_but_numbers_and_ids() {
        let text = "SELECT '{array_1}'::int8[], '{array_2}'::uuid[], '{array_3}'".into_sql_str();
        let arrays = [Array::of_numbers([1, -2]), Array::of_ids([uuid::Uuid::nil()]), Array::of_numbers([])];
        let expected = "SELECT '{1,-2}'::int8[], '{00000000-0000-0000-0000-000000000000}'::uuid[], '{}'";
        assert_eq!(with_arrays(&text, &arrays).as_str(), expected);
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn a_database_name_is_quoted_whatever_it_holds() {
        let schema = SchemaName::mysql("a`; DROP TABLE x; --").unwrap();
        assert_eq!(
            expand("SELECT 1 FROM {schema}t", Some(&schema)).as_str(),
            "SELECT 1 FROM `a``; DROP TABLE x; --`.t"
        );
        assert!(SchemaName::mysql("").is_none());
        assert!(SchemaName::mysql(&"s".repeat(65)).is_none());
    }

    // H8: what goes into a packet is digits.
    #[cfg(feature = "mysql")]
    #[test]
    fn a_packet_holds_nothing_but_digits_of_a_claim() {
        let (lock, mark) = (Hex::new(b"';--"), Hex::new(&[0, 255]));
        let packet = mysql_packet("BEGIN{get_lock}; COMMIT{release_lock}; SELECT '{mark}'", Some(&lock), &mark, None);
        let expected =
            "BEGIN; DO GET_LOCK('idem:273b2d2d', 0); COMMIT; DO RELEASE_LOCK('idem:273b2d2d'); SELECT '00ff'";
        assert_eq!(packet.as_str(), expected);
        assert_eq!(mysql_packet("BEGIN{get_lock}{bound}", None, &mark, None).as_str(), "BEGIN");
        let minute = Some(std::time::Duration::from_secs(60));
        assert!(
            mysql_packet("BEGIN{bound}", None, &mark, minute).as_str().ends_with("LEAST(@@SESSION.wait_timeout, 60)")
        );
    }
}
