//! Who owns how many buckets (M33).

/// A constant of the schema: a key's bucket is 6 bits of a digest.
pub const BUCKETS: u8 = 64;

/// How many buckets belong to the member of this rank, of so many members.
#[must_use]
pub fn share(rank: usize, members: usize) -> usize {
    let all = usize::from(BUCKETS);
    if members == 0 || rank >= members {
        return 0;
    }
    all / members + usize::from(rank < all % members)
}

/// What a member does about its share.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rebalance {
    /// More than its share: to be drained, then released.
    pub surplus: Vec<u8>,
    /// So many free ones are to be taken.
    pub wanting: usize,
}

/// Compares the buckets that `me` holds with its share. `members` are the names of the live members, mine among them.
#[must_use]
pub fn rebalance(me: &str, members: &[String], holding: &[u8]) -> Rebalance {
    let mut members: Vec<&str> = members.iter().map(String::as_str).collect();
    // By bytes, whatever the order of the database.
    members.sort_unstable();
    let wanted = members.iter().position(|member| *member == me).map_or(0, |rank| share(rank, members.len()));
    let mut holding = holding.to_vec();
    holding.sort_unstable();
    Rebalance {
        wanting: wanted.saturating_sub(holding.len()),
        surplus: if holding.len() > wanted { holding.split_off(wanted) } else { Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    // M33
    #[test]
    fn shares_add_up_and_differ_by_one_at_most() {
        for members in 1..200 {
            let shares: Vec<usize> = (0..members).map(|rank| share(rank, members)).collect();
            assert_eq!(shares.iter().sum::<usize>(), 64);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
        assert_eq!(share(0, 3), 22);
        assert_eq!(share(1, 3), 21);
        assert_eq!(share(64, 65), 0);
        assert_eq!(share(0, 0), 0);
    }

    type Table = BTreeMap<u8, Option<String>>;

    /// Each member in turn: gives up what is too much, takes what is free.
    fn round(table: &mut Table, members: &[String]) {
        for me in members {
            let mine: Vec<u8> =
                table.iter().filter(|(_, owner)| owner.as_ref() == Some(me)).map(|(bucket, _)| *bucket).collect();
            let step = rebalance(me, members, &mine);
            for bucket in step.surplus {
                table.insert(bucket, None);
            }
            let free = table.values_mut().filter(|owner| owner.as_ref().is_none_or(|owner| !members.contains(owner)));
            free.take(step.wanting).for_each(|owner| *owner = Some(me.clone()));
        }
    }

    proptest! {
        // M33: two rounds of beats are enough, from any state.
        #[test]
        fn shares_converge_in_two_rounds(
            members in 1_usize..70,
            owners in prop::collection::vec(prop::option::of(0_usize..80), 64),
        ) {
            let names: Vec<String> = (0..members).map(|n| format!("relay-{n}")).collect();
            // Some owners are members, others have gone.
            let owners = owners.into_iter().map(|owner| owner.map(|n| format!("relay-{n}")));
            let mut table: Table = (0_u8..64).zip(owners).collect();
            round(&mut table, &names);
            round(&mut table, &names);
            let mut sorted = names.clone();
            sorted.sort();
            for (rank, name) in sorted.iter().enumerate() {
                let held = table.values().filter(|owner| owner.as_ref() == Some(name)).count();
                prop_assert_eq!(held, share(rank, members));
            }
            let before = table.clone();
            round(&mut table, &names);
            prop_assert_eq!(before, table);
        }
    }

    // M33
    #[test]
    fn who_is_no_member_gives_everything_up() {
        let others = ["a".to_owned(), "b".to_owned()];
        assert_eq!(rebalance("c", &others, &[1, 2]), Rebalance { surplus: vec![1, 2], wanting: 0 });
        assert_eq!(rebalance("a", &others, &[1, 2]), Rebalance { surplus: vec![], wanting: 30 });
    }
}
