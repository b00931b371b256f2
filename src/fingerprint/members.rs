//! The index over a canonical encoding in source order: where the members of objects lie whose names are not sorted.
//!
//! Objects whose members came in order need no entry, unless something inside them does. Bytes are never moved: at the
//! end the encoding is given out span by span, in member order. That keeps the work linear at any depth.

use std::cmp::Ordering;
use std::ops::Range;

use super::string::END;

/// A place in one of the lists of an index. Small, because most requests have an index and none has so many members.
type Place = u32;

/// No place: the end of a list.
const NONE: Place = Place::MAX;

/// One member of an object: its name and value lie together in the arena.
struct Member {
    /// Of the name's unescaped bytes. The member starts one byte (a tag) before, and the name ends with [`END`].
    start: usize,
    /// End of the value.
    end: usize,
    /// The first object at or after the value that has an entry.
    objects: Place,
    /// The member that follows it by name.
    next: Place,
}

/// A member of an object whose end was not seen yet.
#[derive(Clone, Copy)]
struct Named {
    /// The first 8 bytes of the name, for quick comparisons; shorter names have zeros at the end.
    prefix: u64,
    member: Place,
}

/// An object that has a place in the index.
struct Object {
    /// Just past the opening tag.
    start: usize,
    /// Just before the closing tag.
    end: usize,
    /// The entry that follows this one and all entries inside of it.
    next: Place,
    /// Its first member by name; none if its members lie in the arena in that order.
    first: Place,
}

/// An object whose end was not seen yet.
pub(super) struct OpenObject {
    entry: usize,
    first_member: usize,
    first_open: usize,
    sorted: bool,
}

/// How many entries there were.
pub(super) struct Mark {
    objects: usize,
    members: usize,
}

/// See the module. All positions are those of one arena, which grows while the index is built.
#[derive(Default)]
pub(super) struct Index {
    /// By position of their start.
    objects: Vec<Object>,
    /// By position of their start: members of open objects, and of closed ones with an entry.
    members: Vec<Member>,
    /// Members of open objects; those of the innermost one come last.
    open: Vec<Named>,
}

impl Index {
    /// With room for what most texts of so many bytes need, as far as they are small.
    pub(super) fn for_text(length: usize) -> Self {
        let members = (length / 16).min(40);
        Self {
            objects: Vec::with_capacity(members / 4),
            members: Vec::with_capacity(members),
            open: Vec::with_capacity(members / 2),
        }
    }

    /// The arena ends with the opening tag of an object. `None`: there are more objects than an index has places.
    pub(super) fn open_object(&mut self, arena: &[u8]) -> Option<OpenObject> {
        let entry = self.objects.len();
        place(entry)?;
        self.objects.push(Object { start: arena.len(), end: 0, next: NONE, first: NONE });
        Some(OpenObject { entry, first_member: self.members.len(), first_open: self.open.len(), sorted: true })
    }

    /// The arena ends with the name (a tag, `name`, an end mark) of the next member. `None` if it repeats the name of
    /// the one before it; other repetitions are found when the object is closed.
    pub(super) fn start_member(&mut self, object: &mut OpenObject, arena: &[u8], name: Range<usize>) -> Option<()> {
        let named = Named { prefix: prefix(arena, &name), member: place(self.members.len())? };
        self.members.push(Member { start: name.start, end: 0, objects: place(self.objects.len())?, next: NONE });
        if object.sorted
            && let Some(previous) = self.open[object.first_open..].last()
        {
            match compare(previous, &named, &self.members, arena) {
                Ordering::Less => {}
                Ordering::Equal => return None,
                Ordering::Greater => object.sorted = false,
            }
        }
        self.open.push(named);
        Some(())
    }

    /// The arena ends with the value of the innermost object's last member.
    pub(super) fn end_member(&mut self, arena: &[u8]) {
        if let Some(member) = self.last_member() {
            member.end = arena.len();
        }
    }

    /// Takes back the innermost object's last member, whose value does not count. Its name stays, so that a second
    /// member of that name is still noticed.
    pub(super) fn omit_member(&mut self, object: &mut OpenObject) {
        // The bytes in the arena are not all to be given out, so the object needs its entry.
        object.sorted = false;
        if let Some(member) = self.last_member() {
            member.end = member.start - 1;
        }
    }

    fn last_member(&mut self) -> Option<&mut Member> {
        self.members.get_mut(self.open.last()?.member as usize)
    }

    /// Where the entries end now. A value begins here.
    pub(super) fn mark(&self) -> Mark {
        Mark { objects: self.objects.len(), members: self.members.len() }
    }

    /// Forgets the entries of the value that began at the mark, whose end was seen.
    pub(super) fn rewind(&mut self, mark: &Mark) {
        self.objects.truncate(mark.objects);
        self.members.truncate(mark.members);
    }

    /// The closing tag of the innermost object comes next. `None` if two of its members have one name.
    pub(super) fn close_object(&mut self, object: &OpenObject, arena: &[u8]) -> Option<()> {
        let next = self.objects.len();
        let mut first = NONE;
        if !object.sorted {
            let open = &mut self.open[object.first_open..];
            open.sort_unstable_by(|a, b| compare(a, b, &self.members, arena));
            if open.windows(2).any(|pair| compare(&pair[0], &pair[1], &self.members, arena) == Ordering::Equal) {
                return None;
            }
            for named in open.iter().rev() {
                self.members[named.member as usize].next = first;
                first = named.member;
            }
        } else if next == object.entry + 1 {
            self.objects.pop();
            self.members.truncate(object.first_member);
        }
        self.open.truncate(object.first_open);
        if let Some(entry) = self.objects.get_mut(object.entry) {
            entry.end = arena.len();
            entry.next = place(next)?;
            entry.first = first;
        }
        Some(())
    }

    /// Gives out the whole arena in member order.
    pub(super) fn emit<'a>(&self, arena: &'a [u8], sink: &mut impl FnMut(&'a [u8])) {
        let mut spans = Spans { arena, waiting: 0..0, sink };
        self.emit_span(0..arena.len(), 0, &mut spans);
        spans.flush();
    }

    /// `entry`: the first one that is not before the span. Recurses once per nested object, which the scanner bounds.
    fn emit_span<'a, F: FnMut(&'a [u8])>(&self, span: Range<usize>, entry: Place, spans: &mut Spans<'a, '_, F>) {
        let (mut at, mut entry) = (span.start, entry);
        while let Some(object) = self.object_before(entry, span.end) {
            if object.first == NONE {
                entry += 1;
                continue;
            }
            spans.add(at..object.start);
            let mut next = object.first;
            while let Some(member) = self.members.get(next as usize) {
                let span = member.start - 1..member.end;
                if self.object_before(member.objects, span.end).is_some() {
                    self.emit_span(span, member.objects, spans);
                } else {
                    spans.add(span);
                }
                next = member.next;
            }
            at = object.end;
            entry = object.next;
        }
        spans.add(at..span.end);
    }

    fn object_before(&self, entry: Place, end: usize) -> Option<&Object> {
        self.objects.get(entry as usize).filter(|object| object.start < end)
    }
}

/// What is to be given out next. Spans that lie side by side are given out as one.
struct Spans<'a, 's, F> {
    arena: &'a [u8],
    waiting: Range<usize>,
    sink: &'s mut F,
}

impl<'a, F: FnMut(&'a [u8])> Spans<'a, '_, F> {
    fn add(&mut self, span: Range<usize>) {
        if span.start != self.waiting.end {
            self.flush();
            self.waiting.start = span.start;
        }
        self.waiting.end = span.end;
    }

    fn flush(&mut self) {
        (self.sink)(&self.arena[self.waiting.clone()]);
    }
}

fn place(at: usize) -> Option<Place> {
    Place::try_from(at).ok().filter(|&place| place != NONE)
}

/// By the bytes of the names.
#[inline]
fn compare(a: &Named, b: &Named, members: &[Member], arena: &[u8]) -> Ordering {
    a.prefix.cmp(&b.prefix).then_with(|| compare_whole(a, b, members, arena))
}

/// Apart, since most names differ in their first bytes.
#[cold]
fn compare_whole(a: &Named, b: &Named, members: &[Member], arena: &[u8]) -> Ordering {
    let name = |named: &Named| {
        let rest = &arena[members[named.member as usize].start..];
        &rest[..memchr::memchr(END, rest).unwrap_or(rest.len())]
    };
    name(a).cmp(name(b))
}

/// The first 8 bytes of a name in the arena as a number; shorter names have zeros at the end.
fn prefix(arena: &[u8], name: &Range<usize>) -> u64 {
    let bytes = &arena[name.clone()];
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    if bytes.is_empty() {
        return 0;
    }
    // What comes before the name is shifted out.
    if let Some(last) = arena[..name.end].last_chunk::<8>() {
        return u64::from_be_bytes(*last) << (64 - 8 * bytes.len());
    }
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(padded)
}

#[cfg(test)]
mod tests {
    use super::prefix;

    #[test]
    fn prefixes_order_names_as_their_bytes_do_or_not_at_all() {
        // H15
        let names =
            ["", "\0", "\0\0", "a", "a\0", "aa", "ab", "abcdefgh", "abcdefgha", "abcdefghb", "é", "é\u{10ffff}"];
        for pair in names.windows(2) {
            assert!(pair[0].as_bytes() < pair[1].as_bytes());
            // With nothing before the name, and with much.
            for before in ["", "{\"before the name\""] {
                let prefix = |name: &str| {
                    prefix(format!("{before}{name}").as_bytes(), &(before.len()..before.len() + name.len()))
                };
                assert!(prefix(pair[0]) <= prefix(pair[1]), "{pair:?}");
            }
        }
    }
}
