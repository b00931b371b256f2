//! SQL texts with something in them that is not constant: the schema, or a number that no engine takes as a parameter.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

#[cfg(feature = "postgres")]
/// Stands for the schema's quoted name and its dot, or for nothing.
const PLACEHOLDER: &str = "{schema}";
#[cfg(feature = "postgres")]
/// Stands for the schema's quoted name alone.
const NAME_PLACEHOLDER: &str = "{schema_name}";

#[cfg(feature = "postgres")]
/// A text for the tables of one schema. Expanded once, when a store is built.
pub(crate) fn expand(template: &'static str, schema: Option<&SchemaName>) -> SqlStr {
    let name = schema.map(SchemaName::quoted).unwrap_or_default();
    let prefix = if name.is_empty() { String::new() } else { format!("{name}.") };
    // Constants of this crate and a quoted identifier: nothing of a request can enter here.
    AssertSqlSafe(template.replace(NAME_PLACEHOLDER, &name).replace(PLACEHOLDER, &prefix)).into_sql_str()
}

#[cfg(feature = "postgres")]
/// The name of a schema, of any characters a database accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchemaName(String);

#[cfg(feature = "postgres")]
impl SchemaName {
    /// `None` for what no identifier can be: empty, longer than 63 bytes, or with a NUL.
    pub(crate) fn new(name: &str) -> Option<Self> {
        (1..=63).contains(&name.len()).then_some(())?;
        (!name.contains('\0')).then(|| Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn quoted(&self) -> String {
        format!("\"{}\"", self.0.replace('"', "\"\""))
    }
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

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;

    // S30, H8
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
}
