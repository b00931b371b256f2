//! Many messages in one transaction (M7).

use super::{CONSUMER, Harness, Work, accepted, accepted_all, message, processed};
use crate::inbox::{MOST_IN_A_BATCH, Message, Processed};

fn batch(name: &str, count: usize) -> Vec<Message> {
    (0..count).map(|n| message(format!("{name} {n}"), "payload")).collect()
}

/// First ones, duplicates and conflicts side by side, in any order.
pub async fn a_batch_tells_each_message_its_own<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    let mut messages = batch("mixed", 10);
    for seen in [2, 3, 9] {
        let told = processed(harness, &inbox, &messages[seen], Work::new("seen")).await;
        assert_eq!(told, Processed::First(()));
    }
    messages[3] = message("mixed 3", "other");
    let told = accepted_all(harness, &inbox, &messages, Work::new("mixed")).await;
    let mut expected = [Processed::First(()); 10];
    for (place, what) in [(2, Processed::Duplicate), (3, Processed::Conflict), (9, Processed::Duplicate)] {
        expected[place] = what;
    }
    assert_eq!(told, expected);
    assert_eq!(harness.effects("mixed").await, 7);
    messages[3] = message("mixed 3", "payload");
    assert_eq!(accepted_all(harness, &inbox, &messages, Work::new("mixed")).await, [Processed::Duplicate; 10]);
    assert_eq!(accepted_all(harness, &inbox, &[], Work::new("none")).await, []);
}

/// One id twice in a batch of ten (case B17).
pub async fn a_duplicate_inside_a_batch_is_told<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    let mut messages = batch("twice", 10);
    messages[7] = messages[1].clone();
    messages[8] = message("twice 1", "other");
    let told = accepted_all(harness, &inbox, &messages, Work::new("twice")).await;
    let mut expected = [Processed::First(()); 10];
    expected[7] = Processed::Duplicate;
    expected[8] = Processed::Conflict;
    assert_eq!(told, expected);
    assert_eq!(harness.effects("twice").await, 8);
}

/// As many as go into one batch, and not one more.
pub async fn a_large_batch_is_accepted_whole<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    let messages = batch("large", MOST_IN_A_BATCH + 1);
    let most = &messages[..MOST_IN_A_BATCH];
    assert!(harness.accept(&inbox, &messages, Work::new("too many")).await.is_err());
    let told = accepted_all(harness, &inbox, most, Work::new("large")).await;
    assert!(told.iter().all(|told| *told == Processed::First(())) && told.len() == MOST_IN_A_BATCH);
    let again = accepted_all(harness, &inbox, most, Work::new("large")).await;
    assert!(again.iter().all(|told| *told == Processed::Duplicate) && again.len() == MOST_IN_A_BATCH);
    assert_eq!(harness.effects("large").await, MOST_IN_A_BATCH as u64);
}

/// All of them can be delivered again.
pub async fn a_batch_that_is_rolled_back_leaves_nothing<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    let messages = batch("undone", 5);
    assert!(harness.accept(&inbox, &messages, Work::new("undone").failing()).await.is_err());
    assert_eq!(harness.effects("undone").await, 0);
    assert_eq!(accepted(harness, &inbox, &messages[2], Work::new("undone")).await, Processed::First(()));
    let told = accepted_all(harness, &inbox, &messages, Work::new("undone")).await;
    assert_eq!(told.iter().filter(|told| **told == Processed::First(())).count(), 4);
    assert_eq!(harness.effects("undone").await, 5);
}
