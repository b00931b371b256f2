//! The guides, as they are in the folder `docs` of the repository.
//!
//! - [`quickstart`]: a new service in ten minutes, on SQLite and then on Postgres.
//! - [`transactions`]: what is kept when, and what a handler must know about its transaction.
//! - [`stores`]: which store, and what each promises.
//! - [`foreign_calls`]: handlers that call somebody else: leases, derived keys, checkpoints, held keys.
//! - [`messages`]: webhooks and queues: what to tell each broker, and which message it is.
//! - [`protocol`]: headers, keys, statuses and problem types, for clients and authors of APIs.
//! - [`testing`]: tests of handlers, of services with the layer, and of stores.
//! - [`failures`]: what others got wrong, and what stops it here.
//! - [`clients`]: one key per operation, retries, operations that outlive their process.
//! - [`outbox`]: events that are published once they are committed: destinations, order, duplicates.
//! - [`by_design`]: when no key is needed: computed ids, preconditions, versions.
//! - [`telemetry`]: log lines, series of metrics, a dashboard.
//! - [`operations`]: migrations, purge, what to watch, stuck keys and events, deployments, backups.
//! - [`what_this_is_not`]: what others than this crate are for.
//! - [`benchmarks`]: what it costs, measured.
//!
//! This module exists in the documentation only.

// The blocks of the guides are doc tests of the whole crate. With fewer features there is nothing to compile them with,
// so they are left out. The link targets before each text come first and so win over those at its end, which are for
// readers of the repository.

/// Log lines, series of metrics, a dashboard.
pub mod telemetry {
    #![doc = include_str!("../docs/telemetry.md")]
}

/// Migrations, purge, what to watch, stuck keys and events, deployments, backups.
pub mod operations {
    #![doc = "\n\n[telemetry]: crate::guide::telemetry\n[stores]: crate::guide::stores\n"]
    #![doc = "[transactions]: crate::guide::transactions\n\n"]
    #![doc = include_str!("../docs/operations.md")]
}

/// What others than this crate are for.
pub mod what_this_is_not {
    #![doc = "\n\n[by_design]: crate::guide::by_design\n\n"]
    #![doc = include_str!("../docs/what_this_is_not.md")]
}

/// A new service in ten minutes.
pub mod quickstart {
    #![doc = "\n\n[transactions]: crate::guide::transactions\n[protocol]: crate::guide::protocol\n\n"]
    #![cfg_attr(
        any(not(doctest), all(feature = "axum", feature = "postgres", feature = "sqlite", feature = "testing")),
        doc = include_str!("../docs/quickstart.md")
    )]
}

/// What is kept when, and what a handler must know about its transaction.
pub mod transactions {
    #![doc = "\n\n[quickstart]: crate::guide::quickstart\n[protocol]: crate::guide::protocol\n"]
    #![doc = "[testing]: crate::guide::testing\n\n"]
    #![cfg_attr(
        any(not(doctest), all(feature = "axum", feature = "postgres", feature = "sqlite", feature = "testing")),
        doc = include_str!("../docs/transactions.md")
    )]
}

/// Which store to choose.
pub mod stores {
    #![doc = "\n\n[foreign]: crate::guide::foreign_calls\n[benchmarks]: crate::guide::benchmarks\n"]
    #![doc = "[testing]: crate::guide::testing\n\n"]
    #![doc = include_str!("../docs/stores.md")]
}

/// Handlers that call somebody else.
pub mod foreign_calls {
    #![cfg_attr(
        any(not(doctest), all(feature = "axum", feature = "postgres", feature = "testing")),
        doc = include_str!("../docs/foreign_calls.md")
    )]
}

/// Webhooks and queues.
pub mod messages {
    #![cfg_attr(
        any(
            not(doctest),
            all(
                feature = "axum",
                feature = "nats",
                feature = "postgres",
                feature = "rabbitmq",
                feature = "redis",
                feature = "sqlite"
            )
        ),
        doc = include_str!("../docs/messages.md")
    )]
}

/// What it costs, and how that was measured.
pub mod benchmarks {
    #![doc = include_str!("../docs/benchmarks.md")]
}

/// What clients send and see.
pub mod protocol {
    #![cfg_attr(
        any(not(doctest), all(feature = "axum", feature = "postgres", feature = "sqlite", feature = "testing")),
        doc = include_str!("../docs/protocol.md")
    )]
}

/// One key for all attempts at an operation.
pub mod clients {
    #![doc = "\n\n[protocol]: crate::guide::protocol\n[by design]: crate::guide::by_design\n\n"]
    #![cfg_attr(
        any(not(doctest), all(feature = "client", feature = "testing")),
        doc = include_str!("../docs/clients.md")
    )]
}

/// Events that are neither lost nor invented.
pub mod outbox {
    #![doc = "\n\n[`Publisher`]: crate::outbox::publish::Publisher\n\n"]
    #![cfg_attr(
        any(
            not(doctest),
            all(
                feature = "postgres",
                feature = "nats",
                feature = "rabbitmq",
                feature = "redis",
                feature = "http-publisher"
            )
        ),
        doc = include_str!("../docs/outbox.md")
    )]
}

/// When no key is needed.
pub mod by_design {
    #![doc = "\n\n[clients]: crate::guide::clients\n[transactions]: crate::guide::transactions\n[deterministic ids]: crate::DeterministicId\n\n"]
    #![cfg_attr(
        any(not(doctest), all(feature = "axum", feature = "sqlite")),
        doc = include_str!("../docs/by_design.md")
    )]
}

/// How to test a service that uses this crate.
pub mod testing {
    #![doc = "\n\n[protocol]: crate::guide::protocol#profiles\n[transactions]: crate::guide::transactions\n"]
    #![doc = "[failures]: crate::guide::failures\n\n"]
    #![cfg_attr(
        any(not(doctest), all(feature = "axum", feature = "postgres", feature = "sqlite", feature = "testing")),
        doc = include_str!("../docs/testing.md")
    )]
}

/// What others got wrong, and what stops it here.
pub mod failures {
    #![doc = "\n\n[protocol]: crate::guide::protocol\n[transactions]: crate::guide::transactions\n"]
    #![doc = "[testing]: crate::guide::testing\n\n"]
    #![cfg_attr(
        any(not(doctest), all(feature = "axum", feature = "postgres", feature = "sqlite", feature = "testing")),
        doc = include_str!("../docs/failures.md")
    )]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::policy::{Decision, Policy};
    use crate::problem::{ProblemKind, TYPE_PREFIX};

    const PROTOCOL: &str = include_str!("../docs/protocol.md");

    // Every guide is in the rendered documentation, so that its blocks are doc tests, and can be found from the README.
    #[test]
    fn every_guide_is_mounted_and_linked() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
        // These are parts of the text of an item.
        let parts =
            [("deterministic_ids.md", text("src/derive.rs")), ("outbox_buckets.md", text("src/outbox/bucket.rs"))];
        let (guides, readme, mut found) = (text("src/guide.rs"), text("README.md"), 0);
        for file in std::fs::read_dir(root.join("docs")).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let Some(module) = name.strip_suffix(".md") else { continue };
            found += 1;
            if let Some((_, item)) = parts.iter().find(|(part, _)| *part == name) {
                assert!(item.contains(&format!("docs/{name}")), "{name} is in no item");
                continue;
            }
            assert!(guides.contains(&format!("include_str!(\"../docs/{name}\")")), "{name} is not mounted");
            assert!(guides.contains(&format!("pub mod {module} {{")), "{name} has no module of its name");
            assert!(guides.contains(&format!("//! - [`{module}`]: ")), "{name} is not in the list of guides");
            assert!(readme.contains(&format!("](docs/{name})")), "the README has no link to {name}");
        }
        assert!(found > 15);
    }

    // H42, H43
    #[test]
    fn the_protocol_guide_lists_every_problem_as_it_is_sent() {
        let is_problem =
            |row: &&str| ProblemKind::ALL.iter().any(|kind| row.starts_with(&format!("| `{}` |", kind.slug())));
        let listed: Vec<&str> = PROTOCOL.lines().filter(is_problem).collect();
        assert_eq!(listed.len(), ProblemKind::ALL.len());
        for (row, kind) in listed.iter().zip(ProblemKind::ALL) {
            let waits = if kind.waiting_helps() { "yes" } else { "no" };
            let expected = format!("| `{}` | {} | {waits} |", kind.slug(), kind.status().as_u16());
            assert!(row.starts_with(&expected), "{row}: expected {expected}");
        }
        assert!(PROTOCOL.contains(TYPE_PREFIX));
        let kind = ProblemKind::InProgress;
        for shown in [kind.type_uri().as_str(), kind.title(), kind.detail()] {
            assert!(PROTOCOL.contains(shown), "{shown}");
        }
    }

    /// The outcome of every status by the table under this heading: a status that is named outranks its class.
    fn table_of(heading: &str, status: u16) -> String {
        let section = PROTOCOL.split(heading).nth(1).unwrap_or_default();
        let table = section.lines().skip_while(|line| !line.starts_with("| status")).skip(2);
        let rows: Vec<Vec<&str>> = table
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.split('|').map(str::trim).collect())
            .collect();
        let names = |name: &str| {
            rows.iter().find(|row| row[1].split([',', ' ']).any(|word| word == name)).map(|row| row[2..6].join(" "))
        };
        names(&status.to_string()).or_else(|| names(&format!("{}xx", status / 100))).unwrap_or_default()
    }

    // H31, H32, H43: status × profile, as the guide has it and as it is done.
    #[test]
    fn the_protocol_guide_has_the_outcome_of_every_status_in_every_profile() {
        for (heading, policy) in
            [("### `Profile::ietf()`", Policy::default()), ("### `Profile::stripe()`", Policy::stripe())]
        {
            for status in 200..600 {
                let head = http::Response::builder().status(status).body(()).unwrap().into_parts().0;
                let done = match policy.outcome(&head).decision() {
                    Decision::Commit => "Commit yes kept taken",
                    Decision::Refuse => "Refuse yes undone taken",
                    Decision::Abandon => "Abandon no undone free",
                };
                assert_eq!(table_of(heading, status), done, "{heading} {status}");
            }
        }
    }

    // H36
    #[test]
    fn the_protocol_guide_lists_every_problem_under_its_grpc_code() {
        let grpc = PROTOCOL.split("## gRPC").nth(1).unwrap_or_default();
        for kind in ProblemKind::ALL {
            let named = format!("`{}`", kind.slug());
            let row = grpc.lines().find(|line| line.starts_with('|') && line.contains(&named)).unwrap_or_default();
            assert!(row.starts_with(&format!("| {} ", kind.grpc_code())), "{named}: {row}");
        }
        assert!(grpc.contains(crate::layer::IDEMPOTENCY_PROBLEM.as_str()));
    }
}
