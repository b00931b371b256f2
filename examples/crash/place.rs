//! Where the keys are.

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Postgres,
    PostgresLease,
    MariaDb,
    Sqlite,
    Redis,
}

impl Place {
    const ALL: [Self; 5] = [Self::Postgres, Self::PostgresLease, Self::MariaDb, Self::Sqlite, Self::Redis];

    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::PostgresLease => "postgres-lease",
            Self::MariaDb => "mariadb",
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
        }
    }

    /// The server that it needs, as `tests/run` calls it.
    pub fn server(self) -> Option<&'static str> {
        match self {
            Self::Postgres | Self::PostgresLease => Some("postgres"),
            Self::MariaDb => Some("mariadb"),
            Self::Redis => Some("redis"),
            Self::Sqlite => None,
        }
    }

    /// Whether a claim is a lease, and effects are no part of it.
    pub fn is_lease(self) -> bool {
        matches!(self, Self::PostgresLease | Self::Redis)
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|place| place.name() == text).ok_or_else(|| format!("there is no store {text}"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
