//! The canonical form of JSON text (RFC 8259): equal bytes exactly for equal values.
//!
//! One pass checks the grammar and writes an encoding of the values into an arena, in source order; [`Index`] remembers
//! which objects must be given out in another order. Nothing is recursive in the input's depth but the last step, and
//! that depth is bounded.
//!
//! The encoding: a tag byte starts each value. Numbers and strings end with `string::END`, arrays and objects with a
//! tag of their own. Members are a string and a value, ordered by the bytes of their names. Every value ends by itself,
//! so the encoding can be read back in one way only.
//!
//! What a pointer names is read like everything else and then taken back: the form is that of the document without it.

use super::members::{Index, Mark, OpenObject};
use super::pointers::{NodeId, Pointers};
use super::{number, string};

/// The deepest nesting of arrays and objects that has a canonical form.
pub(super) const MAX_DEPTH: usize = 128;

const STRING: u8 = b'"';
const ARRAY: u8 = b'[';
const ARRAY_END: u8 = b']';
const OBJECT: u8 = b'{';
const OBJECT_END: u8 = b'}';
const NULL: u8 = b'n';
const TRUE: u8 = b't';
const FALSE: u8 = b'f';

/// A JSON text in canonical form, not yet put into order.
pub(super) struct Canonical {
    arena: Vec<u8>,
    index: Index,
}

impl Canonical {
    /// Reads a whole JSON text, of which what the pointers name does not count.
    ///
    /// `None` where it has no canonical form: not JSON (RFC 8259, so no byte order mark and nothing after the value),
    /// not UTF-8, a lone surrogate, one name twice in an object, nesting past [`MAX_DEPTH`], or a number whose exponent
    /// does not fit into an `i128`. What the pointers name is no exception.
    pub(super) fn scan(text: &[u8], left_out: &Pointers) -> Option<Canonical> {
        std::str::from_utf8(text).ok()?;
        let arena = Vec::with_capacity(text.len() + string::WORD);
        let canonical = Canonical { arena, index: Index::for_text(text.len()) };
        Scanner { rest: text, canonical, open: Vec::with_capacity(8), left_out }.run()
    }

    /// Gives out the canonical bytes in order, in pieces.
    pub(super) fn emit<'a>(&'a self, sink: &mut impl FnMut(&'a [u8])) {
        self.index.emit(&self.arena, sink);
    }

    #[cfg(test)]
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.emit(&mut |piece| bytes.extend_from_slice(piece));
        bytes
    }
}

enum Container {
    Array,
    Object(OpenObject),
}

/// An array or object whose end was not seen yet.
struct Open {
    container: Container,
    /// Only where pointers lead into it, and apart, so that all others stay small.
    walk: Option<Box<Walk>>,
}

/// How far the pointers into a container were followed.
struct Walk {
    node: NodeId,
    /// Values that were started.
    started: usize,
    /// The place of the value that is being read.
    child: Option<NodeId>,
    /// Where that value began, if it does not count.
    omitted: Option<Start>,
}

/// Where a value began: in the arena and in the index.
struct Start(usize, Mark);

struct Scanner<'a> {
    /// What was not read yet.
    rest: &'a [u8],
    canonical: Canonical,
    open: Vec<Open>,
    left_out: &'a Pointers,
}

impl Scanner<'_> {
    fn run(mut self) -> Option<Canonical> {
        loop {
            // A container that was just opened and is not empty goes on with its first value.
            let is_whole = !self.start_value()?;
            if is_whole && self.end_value()? {
                return Some(self.canonical);
            }
            self.start_element()?;
        }
    }

    /// Reads a scalar, an empty container or the start of one with content. Whether the latter.
    fn start_value(&mut self) -> Option<bool> {
        let first = self.peek()?;
        if matches!(first, b'-' | b'0'..=b'9') {
            self.number()?;
            return Some(false);
        }
        self.next()?;
        match first {
            b'"' => self.string()?,
            b'{' => return self.open(OBJECT, b'}'),
            b'[' => return self.open(ARRAY, b']'),
            b't' => self.literal(b"rue", TRUE)?,
            b'f' => self.literal(b"alse", FALSE)?,
            b'n' => self.literal(b"ull", NULL)?,
            _ => return None,
        }
        Some(false)
    }

    /// Reads what follows a value, and closes the containers that end there. Whether nothing follows any more.
    fn end_value(&mut self) -> Option<bool> {
        loop {
            let Some(open) = self.open.last_mut() else {
                return self.peek().is_none().then_some(true);
            };
            let Canonical { arena, index } = &mut self.canonical;
            let omitted = open.walk.as_mut().and_then(|walk| walk.omitted.take());
            if let Some(Start(start, mark)) = &omitted {
                arena.truncate(*start);
                index.rewind(mark);
            }
            match &mut open.container {
                Container::Object(object) if omitted.is_some() => index.omit_member(object),
                Container::Object(_) => index.end_member(arena),
                Container::Array => {}
            }
            match self.next()? {
                b',' => return Some(false),
                end => self.close(end)?,
            }
        }
    }

    /// Whether the container has content.
    fn open(&mut self, tag: u8, end: u8) -> Option<bool> {
        if self.open.len() == MAX_DEPTH {
            return None;
        }
        let Canonical { arena, index } = &mut self.canonical;
        arena.push(tag);
        let container = if tag == OBJECT { Container::Object(index.open_object(arena)?) } else { Container::Array };
        let node = match self.open.last() {
            None => self.left_out.root(),
            Some(outer) => outer.walk.as_ref().and_then(|walk| walk.child),
        };
        let walk = node.map(|node| Box::new(Walk { node, started: 0, child: None, omitted: None }));
        self.open.push(Open { container, walk });
        if self.peek()? == end {
            self.next()?;
            self.close(end)?;
            return Some(false);
        }
        Some(true)
    }

    /// Closes the innermost container, if `end` is what closes it.
    fn close(&mut self, end: u8) -> Option<()> {
        let Canonical { arena, index } = &mut self.canonical;
        match (self.open.pop()?.container, end) {
            (Container::Array, b']') => arena.push(ARRAY_END),
            (Container::Object(object), b'}') => {
                index.close_object(&object, arena)?;
                arena.push(OBJECT_END);
            }
            _ => return None,
        }
        Some(())
    }

    /// Reads what stands before a value in the innermost container: in an object the name and the colon.
    fn start_element(&mut self) -> Option<()> {
        let mut name = 0..0;
        if let Some(Open { container: Container::Object(_), .. }) = self.open.last() {
            if self.next()? != b'"' {
                return None;
            }
            let start = self.canonical.arena.len() + 1;
            self.string()?;
            name = start..self.canonical.arena.len() - 1;
            if self.next()? != b':' {
                return None;
            }
        }
        let Canonical { arena, index } = &mut self.canonical;
        let open = self.open.last_mut()?;
        if let Container::Object(object) = &mut open.container {
            index.start_member(object, arena, name.clone())?;
        }
        let Some(walk) = &mut open.walk else {
            return Some(());
        };
        let child = match open.container {
            Container::Object(_) => self.left_out.member(walk.node, &arena[name]),
            Container::Array => self.left_out.element(walk.node, walk.started),
        };
        walk.started += 1;
        // Inside of what does not count there is nothing more to leave out.
        walk.child = child.filter(|&child| !self.left_out.names(child));
        if child.is_some() && walk.child.is_none() {
            walk.omitted = Some(Start(arena.len(), index.mark()));
        }
        Some(())
    }

    fn string(&mut self) -> Option<()> {
        self.canonical.arena.push(STRING);
        let read = string::scan(self.rest, &mut self.canonical.arena)?;
        self.rest = &self.rest[read..];
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        let read = number::scan(self.rest, &mut self.canonical.arena)?;
        self.rest = &self.rest[read..];
        Some(())
    }

    fn literal(&mut self, rest: &[u8], tag: u8) -> Option<()> {
        self.rest = self.rest.strip_prefix(rest)?;
        self.canonical.arena.push(tag);
        Some(())
    }

    /// The next byte that is not white space, without taking it.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.rest {
                [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] => self.rest = rest,
                [byte, ..] => return Some(*byte),
                [] => return None,
            }
        }
    }

    /// Takes the next byte that is not white space.
    fn next(&mut self) -> Option<u8> {
        loop {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn canonical(text: &str) -> Option<Vec<u8>> {
        Canonical::scan(text.as_bytes(), &Pointers::default()).map(|canonical| canonical.to_vec())
    }

    #[test]
    fn spellings_of_one_value_are_equal() {
        // H15
        for (a, b) in [
            (r#"{"a":1,"b":[true,false,null]}"#, " {\t\"b\" : [ true,\r\nfalse , null ] , \"a\" : 1 } "),
            (
                r#"{"b":{"d":1,"c":2},"a":{"f":[{"h":1,"g":2}],"e":3}}"#,
                r#"{"a":{"e":3,"f":[{"g":2,"h":1}]},"b":{"c":2,"d":1}}"#,
            ),
            (r#"{"a":{"z":{"b":1,"a":2}},"b":1}"#, r#"{"b":1,"a":{"z":{"a":2,"b":1}}}"#),
            (r#""\u0061/\/""#, r#""a\/\u002F""#),
            (r#"{"\u0061":1,"B":2}"#, r#"{"B":2,"a":1}"#),
            ("[1,1.0]", "[10e-1,1e0]"),
            ("-0", "0e999"),
            ("[]", "[ ]"),
            ("{}", "{\n}"),
        ] {
            assert!(canonical(a).is_some(), "{a}");
            assert_eq!(canonical(a), canonical(b), "{a} {b}");
        }
    }

    #[test]
    fn different_values_are_never_equal() {
        // H15
        let texts = [
            "null",
            "true",
            "false",
            "0",
            "1",
            "\"\"",
            "\"1\"",
            "\"null\"",
            "[]",
            "{}",
            "[null]",
            "[[]]",
            "[[],[]]",
            "[[[]]]",
            r#"{"a":null}"#,
            r#"{"a":1}"#,
            r#"{"a":[1]}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":2,"b":1}"#,
            r#"{"a":{"b":2}}"#,
            r#"{"a":{},"b":2}"#,
            r#"["a",1]"#,
            r#"["a",1,"b",2]"#,
            "[1,2]",
            "[2,1]",
            "[12]",
            r#"["12"]"#,
            r#"["1","2"]"#,
            r#"["a","b"]"#,
            r#"["ab"]"#,
            r#"["a\"b"]"#,
            "9007199254740992",
            "9007199254740993",
            r#""é""#,
            r#""e\u0301""#,
        ];
        for (at, a) in texts.iter().enumerate() {
            assert!(canonical(a).is_some(), "{a}");
            for b in &texts[..at] {
                assert_ne!(canonical(a), canonical(b), "{a} {b}");
            }
        }
    }

    #[test]
    fn what_has_no_canonical_form_is_none() {
        // H15
        for text in [
            "",
            " ",
            "{",
            "[",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1}",
            "{]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1]",
            "{a:1}",
            "{1:1}",
            "{\"a\" 1}",
            "{\"a\":1 \"b\":2}",
            "1 2",
            "{} {}",
            "[]]",
            "nul",
            "nulll",
            "True",
            "tru",
            "'a'",
            "\"a",
            "[1]\u{a0}",
            "\u{feff}1",
            "/**/1",
            "01",
            "1.",
            "1e170141183460469231731687303715884105728",
            r#""\ud800""#,
            r#"{"\udfff":1}"#,
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"b":1,"a":2,"b":3}"#,
            r#"{"a":1,"b":2,"a":3}"#,
            r#"[{"x":{"longer name":1,"b":2,"longer name":3}}]"#,
        ] {
            assert_eq!(canonical(text), None, "{text}");
        }
        for text in [&b"\"\xff\""[..], b"\"\xed\xa0\x80\""] {
            assert!(Canonical::scan(text, &Pointers::default()).is_none());
        }
    }

    #[test]
    fn one_name_may_occur_in_several_objects() {
        // H15
        assert!(canonical(r#"{"a":{"a":1},"b":{"a":2,"b":[{"a":3},{"a":4}]}}"#).is_some());
    }

    #[test]
    fn nesting_has_a_form_up_to_the_bound_only() {
        // H15
        let arrays = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let objects = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
        for nested in [arrays, objects] {
            assert!(canonical(&nested(MAX_DEPTH)).is_some());
            assert!(canonical(&nested(MAX_DEPTH + 1)).is_none());
            assert!(canonical(&nested(1_000_000)).is_none());
        }
        assert!(canonical(&"[".repeat(1_000_000)).is_none());
    }

    fn pointers(texts: &[&str]) -> Pointers {
        let mut pointers = Pointers::default();
        texts.iter().for_each(|text| pointers.insert(text).unwrap());
        pointers
    }

    fn without(text: &str, left_out: &[&str]) -> Option<Vec<u8>> {
        Canonical::scan(text.as_bytes(), &pointers(left_out)).map(|canonical| canonical.to_vec())
    }

    #[test]
    fn what_a_pointer_names_does_not_count() {
        // H17
        for (text, left_out, equal) in [
            (r#"{"a":1,"ts":{"b":[2]},"c":3}"#, &["/ts"][..], r#"{"a":1,"c":3}"#),
            (r#"{"c":3,"ts":{"z":1,"b":[{"y":1,"x":2}]},"a":1}"#, &["/ts"], r#"{"a":1,"c":3}"#),
            (r#"{"a":1}"#, &["/ts"], r#"{"a":1}"#),
            (r#"{"ts":1}"#, &["/ts"], "{}"),
            (r#"{"a":{"t":1,"u":2},"t":3}"#, &["/a/t"], r#"{"a":{"u":2},"t":3}"#),
            (r#"{"a":{"t":{"t":1}}}"#, &["/a/t"], r#"{"a":{}}"#),
            (r#"{"\u0061/b":1,"m~n":2,"":3,"d":4}"#, &["/a~1b", "/m~0n", "/"], r#"{"d":4}"#),
            (r#"[1,{"b":1,"a":2},3]"#, &["/1"], "[1,3]"),
            ("[1,2,3,4]", &["/0", "/3"], "[2,3]"),
            ("[1]", &["/0"], "[]"),
            ("[1,2]", &["/2", "/-", "/01"], "[1,2]"),
            (r#"{"01":1,"-":2,"1":3,"d":4}"#, &["/01", "/-", "/1"], r#"{"d":4}"#),
            (r#"[{"t":1,"b":2},{"t":3,"b":4}]"#, &["/0/t"], r#"[{"b":2},{"t":3,"b":4}]"#),
            (r#"{"a":[[{"y":2,"x":1}],{"z":1,"b":2}]}"#, &["/a/0"], r#"{"a":[{"b":2,"z":1}]}"#),
            (r#"{"a":[{"y":2,"x":1}],"b":{"d":1,"c":2}}"#, &["/a/0/x", "/b"], r#"{"a":[{"y":2}]}"#),
            (r#"{"a":{"b":1,"c":2}}"#, &["/a", "/a/b"], "{}"),
            ("1", &["/a"], "1"),
        ] {
            assert!(canonical(equal).is_some(), "{equal}");
            assert_eq!(without(text, left_out), canonical(equal), "{text} {left_out:?}");
        }
    }

    #[test]
    fn arrays_are_told_apart_by_the_elements_that_count() {
        // H17: each has its own second element left out.
        assert_ne!(without("[1,9,3]", &["/1"]), without("[1,3]", &["/1"]));
        assert_eq!(without("[1,9,3]", &["/1"]), without("[1,8,3]", &["/1"]));
    }

    #[test]
    fn what_does_not_count_must_be_well_formed_all_the_same() {
        // H15, H17
        for text in [
            r#"{"t":1,"t":2}"#,
            r#"{"t":1,"a":1,"t":2}"#,
            r#"{"a":1,"t":{"b":1,"b":2}}"#,
            r#"{"t":nul}"#,
            r#"{"t":}"#,
            r#"{"t":"\ud800"}"#,
            r#"{"t":1e170141183460469231731687303715884105728}"#,
        ] {
            assert_eq!(without(text, &["/t"]), None, "{text}");
        }
        assert_eq!(without(&format!("[{}{}]", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH)), &["/0"]), None);
    }

    #[test]
    fn many_unsorted_levels_are_put_in_order() {
        // H15
        let falling = "{\"z\":1,\"m\":".repeat(120) + "2" + &",\"a\":[3]}".repeat(120);
        let rising = "{\"a\":[3],\"m\":".repeat(120) + "2" + &",\"z\":1}".repeat(120);
        assert_eq!(canonical(&falling), canonical(&rising));
        assert!(canonical(&falling).is_some());
    }

    #[test]
    fn a_sorted_text_needs_no_index() {
        // H15: the work for what is sorted is one pass.
        let text = br#"{"a":[{"b":1},{"c":{"d":2,"e":3}}],"f":{}}"#;
        let canonical = Canonical::scan(text, &Pointers::default()).unwrap();
        let mut pieces = 0;
        canonical.emit(&mut |_| pieces += 1);
        assert_eq!(pieces, 1);
    }

    /// A JSON value with an exact decimal: sign, digits without leading and trailing zeros (none for zero), exponent.
    #[derive(Debug, Clone, PartialEq)]
    enum Model {
        Null,
        Bool(bool),
        Number(bool, String, i64),
        Text(String),
        Array(Vec<Model>),
        Object(BTreeMap<String, Model>),
    }

    fn number() -> impl Strategy<Value = Model> {
        let digits = prop_oneof![4 => "[1-9]", 2 => "[1-9][0-9]{0,6}[1-9]", 1 => "[1-9][0-9]{20,40}[1-9]", 1 => Just(String::new())];
        let exponent =
            prop_oneof![6 => -3..4i64, 2 => -400..400i64, 1 => -130..-124i64, 1 => 124..130i64, 1 => any::<i64>()];
        (any::<bool>(), digits, exponent).prop_map(|(negative, digits, exponent)| {
            if digits.is_empty() { Model::Number(false, digits, 0) } else { Model::Number(negative, digits, exponent) }
        })
    }

    /// Few names and values, so that equal parts and repeated names are likely.
    fn text() -> impl Strategy<Value = String> {
        prop_oneof![4 => "[ab]{0,2}", 1 => "abcdefgh[ab\u{0}]{0,2}", 1 => "\\PC{0,12}", 1 => any::<String>()]
    }

    fn model() -> impl Strategy<Value = Model> {
        let scalar = prop_oneof![
            Just(Model::Null),
            any::<bool>().prop_map(Model::Bool),
            number(),
            number(),
            text().prop_map(Model::Text)
        ];
        scalar.prop_recursive(6, 40, 5, |inner| {
            prop_oneof![
                1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Model::Array),
                2 => prop::collection::btree_map(text(), inner, 0..5).prop_map(Model::Object),
            ]
        })
    }

    /// Prints models in one of many spellings.
    struct Speller {
        state: u64,
        out: String,
    }

    impl Speller {
        fn spell(model: &Model, seed: u64) -> String {
            let mut speller = Speller { state: seed, out: String::new() };
            speller.value(model);
            speller.blank();
            speller.out
        }

        /// A number below `bound`.
        fn roll(&mut self, bound: usize) -> usize {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.state >> 40).unwrap() % bound
        }

        fn blank(&mut self) {
            while self.roll(4) == 0 {
                let blank = [" ", "\n", "\t", "\r\n"][self.roll(4)];
                self.out.push_str(blank);
            }
        }

        fn value(&mut self, model: &Model) {
            self.blank();
            match model {
                Model::Null => self.out.push_str("null"),
                Model::Bool(value) => self.out.push_str(&value.to_string()),
                Model::Number(negative, digits, exponent) => self.number(*negative, digits, *exponent),
                Model::Text(text) => self.text(text),
                Model::Array(values) => self.list('[', values, ']', Self::value),
                Model::Object(members) => {
                    let mut members: Vec<_> = members.iter().collect();
                    for at in (1..members.len()).rev() {
                        members.swap(at, self.roll(at + 1));
                    }
                    self.list('{', &members, '}', |speller, (name, value)| {
                        speller.blank();
                        speller.text(name);
                        speller.blank();
                        speller.out.push(':');
                        speller.value(value);
                    });
                }
            }
            self.blank();
        }

        fn list<T>(&mut self, start: char, items: &[T], end: char, item: impl Fn(&mut Self, &T)) {
            self.out.push(start);
            for (at, value) in items.iter().enumerate() {
                if at > 0 {
                    self.out.push(',');
                }
                item(self, value);
                self.blank();
            }
            self.blank();
            self.out.push(end);
        }

        fn number(&mut self, negative: bool, digits: &str, exponent: i64) {
            if negative || (digits.is_empty() && self.roll(2) == 0) {
                self.out.push('-');
            }
            // Zeros around the digits, then a point somewhere; the exponent makes up for both.
            let after = self.roll(4);
            let before = self.roll(4);
            let padded = "0".repeat(before) + digits + &"0".repeat(after);
            let point = self.roll(padded.len() + 1);
            let (whole, fraction) = padded.split_at(point);
            let shift = i128::try_from(fraction.len()).unwrap() - i128::try_from(after).unwrap();
            let whole = whole.trim_start_matches('0');
            self.out.push_str(if whole.is_empty() { "0" } else { whole });
            if !fraction.is_empty() {
                self.out.push('.');
                self.out.push_str(fraction);
            }
            let exponent =
                if digits.is_empty() { i128::try_from(self.roll(999)).unwrap() } else { i128::from(exponent) + shift };
            if exponent != 0 || self.roll(3) == 0 {
                let mark = ['e', 'E'][self.roll(2)];
                self.out.push(mark);
                let sign = if exponent < 0 { "-" } else { ["", "+"][self.roll(2)] };
                let zeros = "0".repeat(self.roll(3));
                self.out.push_str(&format!("{sign}{zeros}{}", exponent.unsigned_abs()));
            }
        }

        fn text(&mut self, text: &str) {
            self.out.push('"');
            for character in text.chars() {
                let short = "\"\"\\\\//\u{8}b\u{c}f\nn\rr\tt".chars().collect::<Vec<_>>();
                let short = short.chunks(2).find(|pair| pair[0] == character);
                let must = matches!(character, '"' | '\\' | '\0'..='\u{1f}');
                match (self.roll(4), short) {
                    (0 | 1, _) if !must => self.out.push(character),
                    (2, Some(pair)) => self.out.extend(['\\', pair[1]]),
                    _ => {
                        let upper = self.roll(2) == 0;
                        for unit in character.encode_utf16(&mut [0; 2]) {
                            let escape = if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
                            self.out.push_str(&escape);
                        }
                    }
                }
            }
            self.out.push('"');
        }
    }

    /// Changes one place of a value, found by `path`.
    fn change(model: &mut Model, path: &mut impl Iterator<Item = usize>) {
        let step = path.next().unwrap_or(0);
        let here = step.is_multiple_of(4);
        match model {
            Model::Array(values) if !values.is_empty() && !here => {
                let at = step % values.len();
                change(&mut values[at], path);
            }
            Model::Object(members) if !members.is_empty() && !here => {
                let at = step % members.len();
                change(members.values_mut().nth(at).unwrap(), path);
            }
            Model::Array(values) if step.is_multiple_of(8) => values.reverse(),
            Model::Array(values) => values.push(Model::Null),
            Model::Object(members) if step.is_multiple_of(8) => drop(members.pop_first()),
            Model::Object(members) => drop(members.insert("a".to_owned(), Model::Null)),
            Model::Number(negative, digits, _) if here && !digits.is_empty() => *negative = !*negative,
            Model::Number(_, digits, exponent) if step % 4 == 1 && !digits.is_empty() => {
                *exponent = exponent.wrapping_add(1);
            }
            Model::Number(_, digits, _) => digits.push('1'),
            Model::Text(text) => text.push('b'),
            Model::Bool(value) => *value = !*value,
            Model::Null => *model = Model::Bool(false),
        }
    }

    /// The tokens of the place that `path` leads to, if there is one below the top.
    fn place(model: &Model, path: &[usize]) -> Option<Vec<String>> {
        let (step, rest) = path.split_first()?;
        let (token, child) = match model {
            Model::Array(values) if !values.is_empty() => {
                let at = step % values.len();
                (at.to_string(), &values[at])
            }
            Model::Object(members) if !members.is_empty() => {
                let (name, value) = members.iter().nth(step % members.len())?;
                (name.clone(), value)
            }
            _ => return None,
        };
        Some([token].into_iter().chain(place(child, rest).unwrap_or_default()).collect())
    }

    fn pointer(tokens: &[String]) -> String {
        tokens.iter().map(|token| format!("/{}", token.replace('~', "~0").replace('/', "~1"))).collect()
    }

    /// The value without the named places.
    fn prune(model: &Model, at: &mut Vec<String>, names: &[Vec<String>]) -> Model {
        let mut kept = |token: String, value: &Model| {
            at.push(token);
            let kept = (!names.contains(at)).then(|| prune(value, at, names));
            at.pop();
            kept
        };
        match model {
            Model::Array(values) => {
                let values = values.iter().enumerate();
                Model::Array(values.filter_map(|(index, value)| kept(index.to_string(), value)).collect())
            }
            Model::Object(members) => {
                let members = members.iter();
                Model::Object(
                    members.filter_map(|(name, value)| Some((name.clone(), kept(name.clone(), value)?))).collect(),
                )
            }
            scalar => scalar.clone(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]

        #[test]
        fn two_spellings_of_a_value_are_equal(value in model(), a in any::<u64>(), b in any::<u64>()) {
            // H15
            let (a, b) = (Speller::spell(&value, a), Speller::spell(&value, b));
            prop_assert!(canonical(&a).is_some(), "{}", a);
            prop_assert_eq!(canonical(&a), canonical(&b), "{} {}", a, b);
        }

        #[test]
        fn canonical_forms_are_equal_only_for_equal_values(
            value in model(),
            path in prop::collection::vec(any::<usize>(), 0..6),
            a in any::<u64>(),
            b in any::<u64>(),
        ) {
            // H15
            let mut other = value.clone();
            change(&mut other, &mut path.into_iter());
            let (first, second) = (Speller::spell(&value, a), Speller::spell(&other, b));
            prop_assert_eq!(canonical(&first) == canonical(&second), value == other, "{} {}", first, second);
        }

        #[test]
        fn a_value_without_what_pointers_name_is_the_value_that_never_had_it(
            value in model(),
            paths in prop::collection::vec(prop::collection::vec(any::<usize>(), 1..5), 0..4),
            a in any::<u64>(),
            b in any::<u64>(),
        ) {
            // H17
            let names: Vec<Vec<String>> = paths.iter().filter_map(|path| place(&value, path)).collect();
            let texts: Vec<_> = names.iter().map(|tokens| pointer(tokens)).collect();
            let texts: Vec<_> = texts.iter().map(String::as_str).collect();
            let pruned = prune(&value, &mut Vec::new(), &names);
            let (text, expected) = (Speller::spell(&value, a), Speller::spell(&pruned, b));
            prop_assert_eq!(without(&text, &texts), canonical(&expected), "{} {} {:?}", text, expected, texts);
        }

        #[test]
        fn two_independent_small_values_compare_as_values(a in model(), b in model(), seed in any::<u64>()) {
            // H15
            let (first, second) = (Speller::spell(&a, seed), Speller::spell(&b, !seed));
            prop_assert_eq!(canonical(&first) == canonical(&second), a == b, "{} {}", first, second);
        }

        #[test]
        fn what_is_accepted_is_json(text in "[\\[\\]{}:,\"ab01.eE+\\- \\\\u-]{0,12}") {
            // H15: serde_json is stricter only in ways that these characters reach by a number out of f64's range.
            if canonical(&text).is_some() {
                let error = serde_json::from_str::<serde_json::Value>(&text).err();
                prop_assert!(error.is_none_or(|error| error.to_string().contains("out of range")), "{}", text);
            }
        }

        #[test]
        fn no_bytes_make_the_scanner_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
            // H15
            let _ = Canonical::scan(&text, &Pointers::default());
        }

        #[test]
        fn no_damage_makes_the_scanner_panic(value in model(), seed in any::<u64>(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            // H15
            let mut text = Speller::spell(&value, seed).into_bytes();
            let at = at.index(text.len());
            let _ = Canonical::scan(&text[..at], &Pointers::default());
            text[at] = byte;
            let _ = Canonical::scan(&text, &Pointers::default()).map(|canonical| canonical.to_vec());
        }
    }
}
