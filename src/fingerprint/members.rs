//! The index over a canonical encoding in source order: where the members of objects lie whose names are not sorted.
//!
//! Objects whose members came in order need no entry, unless something inside them does. Bytes are never moved: at the
//! end the encoding is given out span by span, in member order. That keeps the work linear at any depth.

use std::cmp::Ordering;
use std::ops::Range;

/// One member of an object: its name and value lie together in the arena.
struct Member {
    /// The first 8 bytes of the name, for quick comparisons; shorter names have zeros at the end.
    prefix: u64,
    /// The name's unescaped bytes.
    name: Range<usize>,
    /// End of the value. The member starts one byte (a tag) before its name.
    end: usize,
    /// Entries of objects inside the value.
    objects: Range<usize>,
}

/// An object that has a place in the index.
struct Object {
    /// Just past the opening tag.
    start: usize,
    /// Just before the closing tag.
    end: usize,
    /// The entry that follows this one and all entries inside of it.
    next: usize,
    /// Its members by name; empty if they lie in the arena in that order.
    members: Range<usize>,
}

/// An object whose end was not seen yet.
pub(super) struct OpenObject {
    entry: usize,
    first_member: usize,
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
    /// Members of closed objects with an entry.
    members: Vec<Member>,
    /// Members of open objects; those of the innermost one come last.
    open: Vec<Member>,
}

impl Index {
    /// With room for what most texts of so many bytes need, as far as they are small.
    pub(super) fn for_text(length: usize) -> Self {
        let members = (length / 16).min(64);
        Self {
            objects: Vec::with_capacity(members / 4),
            members: Vec::with_capacity(members),
            open: Vec::with_capacity(members / 2),
        }
    }

    /// The arena ends with the opening tag of an object.
    pub(super) fn open_object(&mut self, arena: &[u8]) -> OpenObject {
        let open = OpenObject { entry: self.objects.len(), first_member: self.open.len(), sorted: true };
        self.objects.push(Object { start: arena.len(), end: 0, next: 0, members: 0..0 });
        open
    }

    /// The arena ends with the name (a tag, `name`, an end mark) of the next member. `None` if it repeats the name of
    /// the one before it; other repetitions are found when the object is closed.
    pub(super) fn start_member(&mut self, object: &mut OpenObject, arena: &[u8], name: Range<usize>) -> Option<()> {
        let prefix = prefix(&arena[name.clone()]);
        let member = Member { prefix, name, end: 0, objects: self.objects.len()..0 };
        if object.sorted
            && let Some(previous) = self.open[object.first_member..].last()
        {
            match previous.compare(&member, arena) {
                Ordering::Less => {}
                Ordering::Equal => return None,
                Ordering::Greater => object.sorted = false,
            }
        }
        self.open.push(member);
        Some(())
    }

    /// The arena ends with the value of the innermost object's last member.
    pub(super) fn end_member(&mut self, arena: &[u8]) {
        if let Some(member) = self.open.last_mut() {
            member.end = arena.len();
            member.objects.end = self.objects.len();
        }
    }

    /// Takes back the innermost object's last member, whose value does not count. Its name stays, so that a second
    /// member of that name is still noticed.
    pub(super) fn omit_member(&mut self, object: &mut OpenObject) {
        // The bytes in the arena are not all to be given out, so the object needs its entry.
        object.sorted = false;
        if let Some(member) = self.open.last_mut() {
            member.end = member.name.start - 1;
            member.objects.end = member.objects.start;
        }
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
        if object.sorted {
            self.open.truncate(object.first_member);
            if next == object.entry + 1 {
                self.objects.pop();
                return Some(());
            }
        }
        let first = self.members.len();
        if !object.sorted {
            let members = &mut self.open[object.first_member..];
            members.sort_unstable_by(|a, b| a.compare(b, arena));
            if members.windows(2).any(|pair| pair[0].compare(&pair[1], arena) == Ordering::Equal) {
                return None;
            }
            self.members.extend(self.open.drain(object.first_member..));
        }
        let entry = self.objects.get_mut(object.entry)?;
        entry.end = arena.len();
        entry.next = next;
        entry.members = first..self.members.len();
        Some(())
    }

    /// Gives out the whole arena in member order.
    pub(super) fn emit<'a>(&self, arena: &'a [u8], sink: &mut impl FnMut(&'a [u8])) {
        self.emit_span(arena, 0..arena.len(), 0..self.objects.len(), sink);
    }

    /// Recurses once per nested object, which the scanner bounds.
    fn emit_span<'a>(
        &self,
        arena: &'a [u8],
        span: Range<usize>,
        objects: Range<usize>,
        sink: &mut impl FnMut(&'a [u8]),
    ) {
        let mut at = span.start;
        let mut entry = objects.start;
        while entry < objects.end {
            let object = &self.objects[entry];
            if object.members.is_empty() {
                entry += 1;
                continue;
            }
            sink(&arena[at..object.start]);
            for member in &self.members[object.members.clone()] {
                self.emit_span(arena, member.name.start - 1..member.end, member.objects.clone(), sink);
            }
            at = object.end;
            entry = object.next;
        }
        sink(&arena[at..span.end]);
    }
}

impl Member {
    /// By the bytes of the names.
    fn compare(&self, other: &Member, arena: &[u8]) -> Ordering {
        self.prefix.cmp(&other.prefix).then_with(|| arena[self.name.clone()].cmp(&arena[other.name.clone()]))
    }
}

fn prefix(name: &[u8]) -> u64 {
    if let Some(first) = name.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut padded = [0; 8];
    padded[..name.len()].copy_from_slice(name);
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
            assert!(prefix(pair[0].as_bytes()) <= prefix(pair[1].as_bytes()), "{pair:?}");
        }
    }
}
