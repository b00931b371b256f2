//! JSON pointers (RFC 6901) to what does not count, as a tree that a scanner walks down.

use std::collections::{BTreeMap, BTreeSet};

/// Why a text is no pointer to a part of a JSON document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PointerError {
    /// The empty pointer names the whole document; [`key_only`](super::Fingerprinter::key_only) leaves that out.
    #[error("the empty JSON pointer names the whole document")]
    WholeDocument,
    /// It does not start with a slash (RFC 6901 section 3).
    #[error("the JSON pointer {0:?} does not start with a slash")]
    NoSlash(String),
    /// A tilde that is followed by neither 0 nor 1 (RFC 6901 section 3).
    #[error("the JSON pointer {0:?} has a tilde that is followed by neither 0 nor 1")]
    BadEscape(String),
}

/// A place in the tree.
pub(super) type NodeId = usize;

const ROOT: NodeId = 0;

/// A set of pointers.
#[derive(Debug, Clone, Default)]
pub(super) struct Pointers {
    /// As they were given. No two texts are one pointer.
    texts: BTreeSet<String>,
    /// Empty without pointers; the root comes first.
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, Default)]
struct Node {
    /// Whether a pointer ends here.
    named: bool,
    members: BTreeMap<Vec<u8>, NodeId>,
    /// Those children whose token is also an index of an array.
    elements: BTreeMap<usize, NodeId>,
}

impl Pointers {
    pub(super) fn insert(&mut self, pointer: &str) -> Result<(), PointerError> {
        if pointer.is_empty() {
            return Err(PointerError::WholeDocument);
        }
        let tokens = pointer.strip_prefix('/').ok_or_else(|| PointerError::NoSlash(pointer.to_owned()))?;
        let tokens: Option<Vec<_>> = tokens.split('/').map(unescape).collect();
        let tokens = tokens.ok_or_else(|| PointerError::BadEscape(pointer.to_owned()))?;
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let end = tokens.into_iter().fold(ROOT, |node, token| self.child(node, token));
        self.nodes[end].named = true;
        self.texts.insert(pointer.to_owned());
        Ok(())
    }

    fn child(&mut self, node: NodeId, token: String) -> NodeId {
        if let Some(present) = self.member(node, token.as_bytes()) {
            return present;
        }
        let new = self.nodes.len();
        self.nodes.push(Node::default());
        let node = &mut self.nodes[node];
        if let Some(index) = index(&token) {
            node.elements.insert(index, new);
        }
        node.members.insert(token.into_bytes(), new);
        new
    }

    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// In order, each once, and none that names a place inside of another one's.
    pub(super) fn texts(&self) -> Vec<&str> {
        let outer = |text: &str| text.match_indices('/').any(|(slash, _)| self.texts.contains(&text[..slash]));
        self.texts.iter().map(String::as_str).filter(|text| !outer(text)).collect()
    }

    /// The place of a whole document; `None` without pointers.
    pub(super) fn root(&self) -> Option<NodeId> {
        (!self.nodes.is_empty()).then_some(ROOT)
    }

    /// The place of an object's member with this unescaped name; `None` where no pointer leads.
    pub(super) fn member(&self, node: NodeId, name: &[u8]) -> Option<NodeId> {
        self.nodes[node].members.get(name).copied()
    }

    /// The place of an array's element.
    pub(super) fn element(&self, node: NodeId, index: usize) -> Option<NodeId> {
        self.nodes[node].elements.get(&index).copied()
    }

    /// Whether what is at this place does not count.
    pub(super) fn names(&self, node: NodeId) -> bool {
        self.nodes[node].named
    }
}

/// RFC 6901 section 4.
fn unescape(token: &str) -> Option<String> {
    let mut pieces = token.split('~');
    let mut plain = pieces.next()?.to_owned();
    for piece in pieces {
        match piece.as_bytes().first()? {
            b'0' => plain.push('~'),
            b'1' => plain.push('/'),
            _ => return None,
        }
        plain.push_str(&piece[1..]);
    }
    Some(plain)
}

/// An index of an array has no leading zeros (RFC 6901 section 4). `-` names the element after the last, which no
/// document has.
fn index(token: &str) -> Option<usize> {
    let plain = token == "0" || (!token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit()));
    if plain { token.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers(texts: &[&str]) -> Pointers {
        let mut pointers = Pointers::default();
        texts.iter().for_each(|text| pointers.insert(text).unwrap());
        pointers
    }

    #[test]
    fn what_is_no_pointer_is_refused() {
        // H17
        let refused = |text: &str| Pointers::default().insert(text).unwrap_err();
        assert_eq!(refused(""), PointerError::WholeDocument);
        for text in ["a", "a/b", "#/a", " /a"] {
            assert_eq!(refused(text), PointerError::NoSlash(text.to_owned()));
        }
        for text in ["/~", "/a~", "/~2", "/a~/b", "/~~0"] {
            assert_eq!(refused(text), PointerError::BadEscape(text.to_owned()));
        }
    }

    #[test]
    fn tokens_are_unescaped_once() {
        // H17: the examples of RFC 6901 sections 3 and 4.
        let pointers = pointers(&["/a~1b", "/m~0n", "/~01", "/", "/ "]);
        for name in ["a/b", "m~n", "~1", "", " "] {
            let node = pointers.member(ROOT, name.as_bytes());
            assert!(node.is_some_and(|node| pointers.names(node)), "{name}");
        }
        for name in ["/", "a~1b", "a"] {
            assert_eq!(pointers.member(ROOT, name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn an_index_has_no_leading_zeros_and_no_sign() {
        // H17
        for (token, expected) in [
            ("0", Some(0)),
            ("10", Some(10)),
            ("", None),
            ("00", None),
            ("01", None),
            ("-", None),
            ("-1", None),
            ("+1", None),
            ("1e0", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(index(token), expected, "{token}");
        }
    }

    #[test]
    fn pointers_inside_of_others_are_not_listed() {
        // H17, H18
        let listed = |texts| pointers(texts).texts().join(" ");
        assert_eq!(listed(&["/b", "/a/c", "/a", "/a/c/d", "/ab", "/b"]), "/a /ab /b");
        assert_eq!(listed(&["/a/c", "/a/c/d/e"]), "/a/c");
    }
}
