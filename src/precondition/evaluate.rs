//! What preconditions say of a resource (RFC 9110 section 13.2.2): pure.

use std::time::{Duration, SystemTime};

use http::Method;

use super::etag::EntityTag;
use super::fields::Preconditions;
use super::list::TagList;

/// The validators of a resource as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Current {
    tag: Option<EntityTag>,
    modified: Option<SystemTime>,
}

impl Current {
    /// A representation without validators: only `*` matches it.
    #[must_use]
    pub fn untagged() -> Self {
        Self::default()
    }

    /// A representation with this entity tag.
    #[must_use]
    pub fn tagged(tag: EntityTag) -> Self {
        Self { tag: Some(tag), modified: None }
    }

    /// Its time of last modification, in whole seconds as `Last-Modified` shows it.
    #[must_use]
    pub fn modified(mut self, at: SystemTime) -> Self {
        self.modified = Some(at);
        self
    }
}

/// What becomes of a request with preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Do it.
    Proceed,
    /// 304: the client has it already. For GET and HEAD only.
    NotModified,
    /// 412: the resource is not as the client expects it.
    Failed,
}

/// The order of RFC 9110 section 13.2.2; its step 5 (`If-Range`) is for whoever serves ranges.
pub(super) fn evaluate(asked: &Preconditions, current: Option<&Current>) -> Verdict {
    let reads = asked.method == Method::GET || asked.method == Method::HEAD;
    let tag = current.and_then(|current| current.tag.as_ref());
    let modified = current.and_then(|current| current.modified).map(whole_seconds);

    // Steps 1 and 2.
    match (&asked.if_match, asked.if_unmodified_since) {
        (Some(list), _) => {
            let same = if asked.accepts_weakened { EntityTag::weak_eq } else { EntityTag::strong_eq };
            if !names(list, current, tag, same) {
                return Verdict::Failed;
            }
        }
        (None, Some(since)) => {
            // Ignored where the resource has no such date (section 13.1.4).
            if modified.is_some_and(|modified| modified > since) {
                return Verdict::Failed;
            }
        }
        (None, None) => {}
    }

    // Steps 3 and 4.
    match (&asked.if_none_match, asked.if_modified_since) {
        (Some(list), _) if names(list, current, tag, EntityTag::weak_eq) => {
            if reads {
                Verdict::NotModified
            } else {
                Verdict::Failed
            }
        }
        (None, Some(since)) if reads && modified.is_some_and(|modified| modified <= since) => Verdict::NotModified,
        _ => Verdict::Proceed,
    }
}

/// Whether the list names the resource as it is. `*` names any that there is, and none that is not.
fn names(
    list: &TagList,
    current: Option<&Current>,
    tag: Option<&EntityTag>,
    same: fn(&EntityTag, &EntityTag) -> bool,
) -> bool {
    match list {
        TagList::Any => current.is_some(),
        TagList::Tags(tags) => tag.is_some_and(|tag| tags.iter().any(|listed| same(listed, tag))),
    }
}

/// Fields have whole seconds: half a second more is not later than what the client was shown.
fn whole_seconds(at: SystemTime) -> SystemTime {
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs()),
        Err(_) => at,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    const OLD: &str = "Sat, 01 Jan 2000 00:00:00 GMT";
    const SAME: &str = "Sun, 02 Jan 2000 00:00:00 GMT";
    const NEW: &str = "Mon, 03 Jan 2000 00:00:00 GMT";

    fn asked(method: &str, fields: &[(&'static str, &str)]) -> Preconditions {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        Preconditions::parse(&method.parse().unwrap(), &headers).unwrap()
    }

    /// The resource is tagged `"a"` and was modified at `SAME`, with a fraction that no field shows.
    fn present() -> Current {
        let at = httpdate::parse_http_date(SAME).unwrap() + Duration::from_millis(300);
        Current::tagged(EntityTag::strong("a").unwrap()).modified(at)
    }

    // D2: each row is a request; the verdict on GET, on PUT, and on PUT where there is no such resource.
    #[test]
    fn the_table_of_section_13_2_2() {
        use Verdict::{Failed, NotModified, Proceed};
        type Row<'a> = (&'a [(&'static str, &'a str)], Verdict, Verdict, Verdict);
        let table: &[Row<'_>] = &[
            (&[], Proceed, Proceed, Proceed),
            // 1. If-Match, strong.
            (&[("if-match", "\"a\"")], Proceed, Proceed, Failed),
            (&[("if-match", "\"b\", \"a\"")], Proceed, Proceed, Failed),
            (&[("if-match", "\"b\"")], Failed, Failed, Failed),
            (&[("if-match", "W/\"a\"")], Failed, Failed, Failed),
            (&[("if-match", "*")], Proceed, Proceed, Failed),
            // Several lines are one list.
            (&[("if-match", "\"b\""), ("if-match", "\"a\"")], Proceed, Proceed, Failed),
            // 2. If-Unmodified-Since, only without If-Match.
            (&[("if-unmodified-since", OLD)], Failed, Failed, Proceed),
            (&[("if-unmodified-since", SAME)], Proceed, Proceed, Proceed),
            (&[("if-unmodified-since", NEW)], Proceed, Proceed, Proceed),
            (&[("if-unmodified-since", "yesterday")], Proceed, Proceed, Proceed),
            (&[("if-unmodified-since", OLD), ("if-unmodified-since", OLD)], Proceed, Proceed, Proceed),
            (&[("if-match", "\"a\""), ("if-unmodified-since", OLD)], Proceed, Proceed, Failed),
            // 3. If-None-Match, weak.
            (&[("if-none-match", "\"a\"")], NotModified, Failed, Proceed),
            (&[("if-none-match", "W/\"a\"")], NotModified, Failed, Proceed),
            (&[("if-none-match", "\"b\"")], Proceed, Proceed, Proceed),
            (&[("if-none-match", "*")], NotModified, Failed, Proceed),
            // 4. If-Modified-Since, only without If-None-Match, only for GET and HEAD.
            (&[("if-modified-since", OLD)], Proceed, Proceed, Proceed),
            (&[("if-modified-since", SAME)], NotModified, Proceed, Proceed),
            (&[("if-modified-since", NEW)], NotModified, Proceed, Proceed),
            (&[("if-modified-since", "1")], Proceed, Proceed, Proceed),
            (&[("if-none-match", "\"b\""), ("if-modified-since", NEW)], Proceed, Proceed, Proceed),
            (&[("if-none-match", "\"a\""), ("if-modified-since", OLD)], NotModified, Failed, Proceed),
            // Both halves: the first that fails decides, the second is asked after the first has passed.
            (&[("if-match", "\"b\""), ("if-none-match", "\"a\"")], Failed, Failed, Failed),
            (&[("if-match", "\"a\""), ("if-none-match", "\"a\"")], NotModified, Failed, Failed),
            (&[("if-match", "\"a\""), ("if-none-match", "\"b\"")], Proceed, Proceed, Failed),
            (&[("if-unmodified-since", OLD), ("if-none-match", "\"b\"")], Failed, Failed, Proceed),
            (&[("if-unmodified-since", SAME), ("if-modified-since", SAME)], NotModified, Proceed, Proceed),
        ];
        for (fields, get, put, absent) in table {
            assert_eq!(asked("GET", fields).judge(Some(&present())), *get, "GET {fields:?}");
            assert_eq!(asked("HEAD", fields).judge(Some(&present())), *get, "HEAD {fields:?}");
            for method in ["PUT", "PATCH", "DELETE", "POST"] {
                assert_eq!(asked(method, fields).judge(Some(&present())), *put, "{method} {fields:?}");
            }
            assert_eq!(asked("PUT", fields).judge(None), *absent, "absent {fields:?}");
        }
    }

    // D2
    #[test]
    fn weakened_tags_match_where_they_are_let() {
        let put = asked("PUT", &[("if-match", "W/\"a\"")]);
        assert_eq!(put.judge(Some(&present())), Verdict::Failed);
        let put = put.accept_weakened_tags();
        assert_eq!(put.judge(Some(&present())), Verdict::Proceed);
        let other = asked("PUT", &[("if-match", "W/\"b\"")]).accept_weakened_tags();
        assert_eq!(other.judge(Some(&present())), Verdict::Failed);
    }

    #[test]
    fn only_a_star_names_what_has_no_tag() {
        let untagged = Current::untagged();
        assert_eq!(asked("PUT", &[("if-match", "\"a\"")]).judge(Some(&untagged)), Verdict::Failed);
        assert_eq!(asked("PUT", &[("if-match", "*")]).judge(Some(&untagged)), Verdict::Proceed);
        assert_eq!(asked("PUT", &[("if-none-match", "*")]).judge(Some(&untagged)), Verdict::Failed);
        assert_eq!(asked("GET", &[("if-modified-since", NEW)]).judge(Some(&untagged)), Verdict::Proceed);
    }
}
