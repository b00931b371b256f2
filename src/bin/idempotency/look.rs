//! What is there.

use std::time::Duration;

use idempotency::store::{Entry, Operate};
use idempotency::{Endpoint, Key, LookupKey, ScopeId};

use crate::arguments::{Arguments, KeyArguments};
use crate::failure::Failure;
use crate::output;
use crate::place::{Kind, Place};
use crate::show;

/// A key as somebody has named it, before anybody is asked.
pub(crate) struct Named {
    scope: ScopeId,
    key: Key,
    endpoint: Option<Endpoint>,
}

impl Named {
    pub(crate) fn read(arguments: &Arguments, named: &KeyArguments) -> Result<Self, Failure> {
        let key = Key::parse(named.key.as_bytes()).map_err(|error| Failure::usage(format!("no key: {error}")))?;
        let scope = match arguments.scope.as_deref() {
            Some(text) => scope(text).ok_or_else(|| {
                Failure::usage("a scope is not empty: leave --scope out for the scope that all callers share")
            })?,
            None => ScopeId::shared(),
        };
        let endpoint = named.endpoint.as_deref().map(endpoint);
        if endpoint.is_none() && arguments.store.is_some() {
            return Err(Failure::usage("on Redis a key is found with its --endpoint only"));
        }
        Ok(Self { scope, key, endpoint })
    }
}

fn scope(text: &str) -> Option<ScopeId> {
    stored(text).map(|lookup| lookup.scope().clone()).or_else(|| ScopeId::new(text))
}

/// A method and a path, or a name.
fn endpoint(text: &str) -> Endpoint {
    if let Some(lookup) = stored(text) {
        return lookup.endpoint().clone();
    }
    let parts = text.split_once(' ').and_then(|(method, path)| Some((method.parse().ok()?, path)));
    match parts {
        Some((method, path)) if path.starts_with('/') => Endpoint::new(&method, path),
        _ if text.is_empty() => Endpoint::none(),
        _ => Endpoint::named(text),
    }
}

/// What is too long to be kept is kept as its digest (H12), and lists show that: it is taken as it is shown.
fn stored(text: &str) -> Option<LookupKey> {
    let digest = text.strip_prefix("sha256:")?;
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_digest.then(|| LookupKey::from_stored(text, "key", text)).flatten()
}

/// The records of a key.
pub(crate) async fn records(place: &Place, named: &Named) -> Result<Vec<Entry>, Failure> {
    let found = place.store.find(&named.scope, &named.key, named.endpoint.as_ref()).await?;
    if found.is_empty() && named.endpoint.is_none() && matches!(place.kind, Kind::Postgres(_)) {
        // Only the lock of a whole look-up key can be asked for.
        output::remark("idempotency: a key that runs just now is found with its --endpoint only");
    }
    Ok(found)
}

pub(crate) async fn find(place: &Place, arguments: &Arguments, named: &Named) -> Result<(), Failure> {
    shown(&records(place, named).await?, arguments)
}

pub(crate) async fn list_stuck(
    place: &Place,
    arguments: &Arguments,
    older_than: Duration,
    limit: u32,
) -> Result<(), Failure> {
    let entries = place.store.list_stuck(older_than, limit).await?;
    // On transactional Postgres a running key shows as the session that holds it, and not by its name.
    let holders = match &place.kind {
        Kind::Postgres(store) => store.holders(older_than, limit).await?,
        _ => Vec::new(),
    };
    let known = |pid: i64| entries.iter().any(|entry| entry.holder.as_ref().is_some_and(|holder| holder.pid == pid));
    let holders: Vec<_> = holders.into_iter().filter(|holder| !known(holder.pid)).collect();
    if entries.is_empty() && holders.is_empty() {
        return shown(&[], arguments);
    }
    show::list(&entries, &holders, arguments.json)?;
    show::limited(entries.len().max(holders.len()), limit);
    Ok(())
}

fn shown(entries: &[Entry], arguments: &Arguments) -> Result<(), Failure> {
    if arguments.json || !entries.is_empty() {
        show::list(entries, &[], arguments.json)?;
    }
    if entries.is_empty() { Err(Failure::NothingMatched) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // H12
    #[test]
    fn a_digest_is_taken_as_lists_show_it() {
        let long = "a".repeat(200);
        let shown = ScopeId::new(&long).unwrap();
        assert_eq!(scope(shown.as_str()), scope(&long));
        assert_eq!(endpoint(Endpoint::named(&long).as_str()), endpoint(&long));
        // What only begins so is a text like any other.
        assert_eq!(scope("sha256:ab"), ScopeId::new("sha256:ab"));
        assert_eq!(scope(""), None);
    }

    #[test]
    fn an_endpoint_is_a_method_and_a_path_or_a_name() {
        assert_eq!(endpoint("POST /payments"), Endpoint::new(&http::Method::POST, "/payments"));
        assert_eq!(endpoint("nightly job"), Endpoint::named("nightly job"));
        assert_eq!(endpoint(""), Endpoint::none());
    }
}
