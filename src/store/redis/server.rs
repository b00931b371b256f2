//! What a server says of itself.

/// From here on every command and effect that the scripts need is there.
const OLDEST_MAJOR: u32 = 6;
/// From here on scripts may carry flags.
const FLAGS_MAJOR: u32 = 7;

/// The parts of `INFO` that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Server {
    major: Option<u32>,
    max_memory: u64,
    eviction: Option<String>,
}

impl Server {
    /// Reads the text of `INFO`, of any sections; what is missing is not known.
    pub(super) fn parse(info: &str) -> Self {
        let mut server = Self::default();
        for line in info.lines() {
            match line.split_once(':') {
                Some(("redis_version", version)) => {
                    server.major = version.split('.').next().and_then(|major| major.parse().ok());
                }
                Some(("maxmemory", bytes)) => server.max_memory = bytes.trim().parse().unwrap_or_default(),
                Some(("maxmemory_policy", policy)) => server.eviction = Some(policy.trim().to_owned()),
                _ => {}
            }
        }
        server
    }

    pub(super) fn is_too_old(&self) -> bool {
        self.major.is_some_and(|major| major < OLDEST_MAJOR)
    }

    /// Where the version is not known the scripts do without.
    pub(super) fn knows_script_flags(&self) -> bool {
        self.major.is_some_and(|major| major >= FLAGS_MAJOR)
    }

    /// Whether it deletes records when its memory is full. Every record has an end, so each `volatile-…` policy picks
    /// exactly them (case B59).
    pub(super) fn evicts(&self) -> bool {
        self.max_memory > 0 && self.eviction.as_deref().is_some_and(|policy| policy != "noeviction")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(version: &str, max_memory: u64, policy: &str) -> Server {
        Server::parse(&format!(
            "# Server\r\nredis_version:{version}\r\n# Memory\r\nmaxmemory:{max_memory}\r\nmaxmemory_policy:{policy}\r\n"
        ))
    }

    // S25, case B59
    #[test]
    fn every_policy_but_noeviction_deletes_records_on_a_bounded_server() {
        for policy in ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl", "volatile-random"] {
            assert!(server("7.0.15", 1, policy).evicts(), "{policy}");
            assert!(!server("7.0.15", 0, policy).evicts(), "without a bound nothing is deleted");
        }
        assert!(!server("7.0.15", 1, "noeviction").evicts());
        assert!(!Server::parse("").evicts());
    }

    #[test]
    fn versions_are_told_apart() {
        assert!(server("5.0.14", 0, "").is_too_old());
        assert!(!server("6.0.16", 0, "").is_too_old() && !server("6.0.16", 0, "").knows_script_flags());
        assert!(server("7.0.15", 0, "").knows_script_flags());
        assert!(server("10.2.0", 0, "").knows_script_flags());
        let unknown = Server::parse("something else");
        assert!(!unknown.is_too_old() && !unknown.knows_script_flags());
    }
}
