//! Redis Streams: a consumer group, XACK after the commit, XAUTOCLAIM for what others have left.

use std::time::{Duration, Instant};

use idempotency::inbox::source::{IdSource, Incoming, RedisEntry};
use idempotency::inbox::{MessageId, Processed};
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamAutoClaimReply, StreamId, StreamPendingCountReply, StreamReadReply};
use sqlx::{MySql, Postgres};

use super::engine::{Engine, Shop};
use super::handler::{Answer, Consumer, Runs, consumer, giving_up_after, soon};
use super::process::Other;
use crate::support::brokers::Broker;
use crate::support::redis::url;

const GROUP: &str = "shop";
/// Longer than a handler may take, so that nobody claims what still runs.
const MIN_IDLE: Duration = Duration::from_millis(800);

async fn connect() -> MultiplexedConnection {
    redis::Client::open(url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// A stream of its own with its group, and one for what is put aside. A connection for each consumer.
pub(super) struct Queue {
    redis: MultiplexedConnection,
    pub(super) name: String,
    consumer: String,
}

impl Queue {
    pub(super) async fn new() -> Self {
        let mut queue = Self::at(&format!("t-{}", uuid::Uuid::new_v4().simple())).await;
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(&queue.name).arg(GROUP).arg("0").arg("MKSTREAM");
        create.query_async::<()>(&mut queue.redis).await.unwrap();
        queue
    }

    /// As another consumer of the group.
    async fn at(name: &str) -> Self {
        let consumer = uuid::Uuid::new_v4().simple().to_string();
        Self { redis: connect().await, name: name.to_owned(), consumer }
    }

    fn dead(&self) -> String {
        format!("{}-dead", self.name)
    }

    async fn send(&mut self, id: &str, body: &str) -> String {
        let mut add = redis::cmd("XADD");
        add.arg(&self.name).arg("*").arg("id").arg(id).arg("data").arg(body);
        add.query_async(&mut self.redis).await.unwrap()
    }

    fn entry(&self, entry: StreamId) -> RedisEntry {
        RedisEntry::new(&self.name, entry).id_field("id")
    }

    /// What nobody has had yet.
    pub(super) async fn read(&mut self) -> Option<RedisEntry> {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(&self.consumer).arg("COUNT").arg(1).arg("BLOCK").arg(50);
        read.arg("STREAMS").arg(&self.name).arg(">");
        let found: Option<StreamReadReply> = read.query_async(&mut self.redis).await.unwrap();
        let entry = found?.keys.into_iter().next()?.ids.into_iter().next()?;
        Some(self.entry(entry).delivered(1))
    }

    /// What somebody has had and not acknowledged for so long, with the count of its deliveries.
    async fn claim(&mut self, min_idle: Duration) -> Option<RedisEntry> {
        let mut claim = redis::cmd("XAUTOCLAIM");
        let idle = u64::try_from(min_idle.as_millis()).unwrap();
        claim.arg(&self.name).arg(GROUP).arg(&self.consumer).arg(idle).arg("0").arg("COUNT").arg(1);
        let claimed: StreamAutoClaimReply = claim.query_async(&mut self.redis).await.unwrap();
        let entry = claimed.claimed.into_iter().next()?;
        let mut pending = redis::cmd("XPENDING");
        pending.arg(&self.name).arg(GROUP).arg(&entry.id).arg(&entry.id).arg(1);
        let pending: StreamPendingCountReply = pending.query_async(&mut self.redis).await.unwrap();
        let delivered = u64::try_from(pending.ids.first()?.times_delivered).unwrap();
        Some(self.entry(entry).delivered(delivered))
    }

    /// New ones first, so that one that fails again and again does not stop them.
    async fn next(&mut self, min_idle: Duration) -> Option<RedisEntry> {
        match self.read().await {
            Some(entry) => Some(entry),
            None => self.claim(min_idle).await,
        }
    }

    async fn pending(&mut self) -> usize {
        let mut pending = redis::cmd("XPENDING");
        pending.arg(&self.name).arg(GROUP).arg("-").arg("+").arg(100);
        let pending: StreamPendingCountReply = pending.query_async(&mut self.redis).await.unwrap();
        pending.ids.len()
    }

    async fn dead_letters(&mut self) -> Vec<(String, String)> {
        let mut range = redis::cmd("XRANGE");
        range.arg(self.dead()).arg("-").arg("+");
        let found: redis::streams::StreamRangeReply = range.query_async(&mut self.redis).await.unwrap();
        found.ids.iter().map(|entry| (entry.get("id").unwrap(), entry.get("data").unwrap())).collect()
    }

    /// The recipe of the guide: what is not to be acknowledged just stays pending.
    async fn settle(&mut self, entry: &RedisEntry, answer: &Answer) -> redis::RedisResult<()> {
        let mut acknowledge = redis::cmd("XACK");
        acknowledge.arg(&self.name).arg(GROUP).arg(entry.entry_id());
        match answer {
            Ok(Processed::First(()) | Processed::Duplicate) => acknowledge.query_async(&mut self.redis).await,
            Ok(Processed::Conflict | Processed::Poison) => self.put_aside(entry, acknowledge).await,
            Err(error) if !error.is_retryable() => self.put_aside(entry, acknowledge).await,
            Ok(Processed::Busy { .. }) | Err(_) => Ok(()),
        }
    }

    /// Both or neither.
    async fn put_aside(&mut self, entry: &RedisEntry, acknowledge: redis::Cmd) -> redis::RedisResult<()> {
        let mut add = redis::cmd("XADD");
        add.arg(self.dead()).arg("*");
        for name in ["id", "data"] {
            if let Ok(Some(value)) = entry.header(name) {
                add.arg(name).arg(&*value);
            }
        }
        redis::pipe().atomic().add_command(add).add_command(acknowledge).query_async(&mut self.redis).await
    }
}

/// Consumes until the host drops it, and tells what it has told.
async fn consume(
    mut queue: Queue,
    min_idle: Duration,
    consumer: Consumer<RedisEntry>,
    told: impl Fn(&RedisEntry, &Answer),
) {
    loop {
        let Some(entry) = queue.next(min_idle).await else { continue };
        let answer = consumer.deliver(entry.clone()).await;
        told(&entry, &answer);
        queue.settle(&entry, &answer).await.unwrap();
    }
}

fn ids() -> IdSource {
    IdSource::broker("orders")
}

// M9, M2
#[tokio::test]
async fn an_entry_is_named_by_a_field_or_by_its_place() {
    let _calm = Broker::Redis.calm().await;
    let mut queue = Queue::new().await;
    let place = queue.send("evt_1", "a").await;
    let entry = queue.read().await.unwrap();
    assert_eq!(ids().read(&entry).unwrap(), MessageId::new("orders", "evt_1").unwrap());
    assert_eq!((entry.payload(), entry.deliveries()), (&b"a"[..], Some(1)));
    let again = queue.claim(Duration::ZERO).await.unwrap();
    assert_eq!((again.entry_id(), again.deliveries()), (place.as_str(), Some(2)));
    let nameless = RedisEntry::new(&queue.name, StreamId { id: place.clone(), ..StreamId::default() });
    let source = format!("orders#{}", queue.name);
    assert_eq!(ids().read(&nameless).unwrap(), MessageId::new(source, place).unwrap());
}

// M3, M9: claimed too early, while it runs in another process. It is left pending, and comes again.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_runs_elsewhere_stays_pending() {
    let _calm = Broker::Redis.calm().await;
    let (mut queue, shop, runs) = (Queue::new().await, Shop::<Postgres>::new().await, Runs::default());
    queue.send("a", "slow 2000").await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut consumers = Vec::new();
    for _ in 0..2 {
        let (shop, tell) = (shop.again().await, tell.clone());
        let service = consumer(&shop.inbox, ids(), &runs);
        let tell = move |_: &RedisEntry, answer: &Answer| {
            tell.send((Instant::now(), format!("{answer:?}"))).unwrap();
        };
        let too_early = Duration::from_millis(300);
        consumers.push(tokio::spawn(consume(Queue::at(&queue.name).await, too_early, service, tell)));
    }
    let mut all = Vec::new();
    while !all.iter().any(|(_, answer): &(Instant, String)| answer.contains("First")) {
        all.push(tokio::time::timeout(Duration::from_secs(20), told.recv()).await.unwrap().unwrap());
    }
    soon("everything is acknowledged", async || (queue_pending(&queue.name).await == 0).then_some(())).await;
    for consumer in consumers {
        consumer.abort();
    }
    let busy: Vec<Instant> = all.iter().filter(|(_, answer)| answer.contains("Busy")).map(|(at, _)| *at).collect();
    assert!(!busy.is_empty() && busy.len() <= 10, "{all:?}");
    for pair in busy.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(250), "it was claimed faster than it was idle: {all:?}");
    }
    assert_eq!((runs.started(), runs.most_at_once(), shop.effects().await), (1, 1, vec!["slow 2000".to_owned()]));
}

async fn queue_pending(name: &str) -> usize {
    Queue::at(name).await.pending().await
}

/// What the process does that is killed: it processes one entry and does not acknowledge it.
pub async fn processes_and_stops<DB: Engine>(queue: &str, place: &str) {
    let (mut queue, shop) = (Queue::at(queue).await, Shop::<DB>::at(place).await);
    let entry = queue.read().await.unwrap();
    let answer = consumer(&shop.inbox, ids(), &Runs::default()).deliver(entry).await;
    assert!(matches!(answer, Ok(Processed::First(()))), "{answer:?}");
    super::process::say("committed").await;
}

// M4, case B16, case B57: killed between the commit and XACK, and before the commit. Another one finds what is pending. On
// MariaDB.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_consumer_has_left_is_claimed_and_has_one_effect() {
    let _calm = Broker::Redis.calm().await;
    for (body, step, told_last, own_runs) in
        [("a", "committed", "Ok(Duplicate)", 0), ("stop", "written", "Ok(First(()))", 1)]
    {
        let (mut queue, shop, runs) = (Queue::new().await, Shop::<MySql>::new().await, Runs::default());
        queue.send("a", body).await;
        Other::comes_to(step, "redis", &queue.name, &shop.place).await.kill();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let tell = move |entry: &RedisEntry, answer: &Answer| {
            assert!(entry.deliveries().unwrap() > 1, "it is a redelivery");
            let _ = tell.send(format!("{answer:?}"));
        };
        let service = consumer(&shop.inbox, ids(), &runs);
        let consuming = tokio::spawn(consume(Queue::at(&queue.name).await, MIN_IDLE, service, tell));
        soon("everything is acknowledged", async || (queue_pending(&queue.name).await == 0).then_some(())).await;
        consuming.abort();
        let mut last = None;
        while let Ok(answer) = told.try_recv() {
            last = Some(answer);
        }
        assert_eq!(last.as_deref(), Some(told_last), "{step}");
        assert_eq!((runs.started(), shop.effects().await), (own_runs, vec![body.to_owned()]), "{step}");
    }
}

// M6, M9: the count of the group, and a stream for what has failed too often.
#[tokio::test(flavor = "multi_thread")]
async fn poison_goes_to_the_dead_letters_and_does_not_stop_the_others() {
    let _calm = Broker::Redis.calm().await;
    let (mut queue, shop, runs) = (Queue::new().await, Shop::<Postgres>::new().await, Runs::default());
    queue.send("a", "fail a").await;
    queue.send("b", "b").await;
    let service = consumer(&giving_up_after(&shop, 3).await, ids(), &runs);
    let soon_again = Duration::from_millis(100);
    let consuming = tokio::spawn(consume(Queue::at(&queue.name).await, soon_again, service, |_, _| {}));
    soon("it is put aside", async || (Queue::at(&queue.name).await.dead_letters().await.len() == 1).then_some(()))
        .await;
    soon("everything is acknowledged", async || (queue_pending(&queue.name).await == 0).then_some(())).await;
    consuming.abort();
    assert_eq!(queue.dead_letters().await, [("a".to_owned(), "fail a".to_owned())]);
    assert_eq!((shop.effects().await, runs.started()), (vec!["b".to_owned()], 4), "three failures and one success");
}

// Case B15: XACK fails, and nothing is done about it on the spot.
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_whose_acknowledgement_fails_is_claimed_once_each_time() {
    const FAILS: u64 = 3;
    let _calm = Broker::Redis.calm().await;
    let (mut queue, shop, runs) = (Queue::new().await, Shop::<Postgres>::new().await, Runs::default());
    queue.send("a", "a").await;
    let service = consumer(&shop.inbox, ids(), &runs);
    let min_idle = Duration::from_millis(300);
    for n in 0..=FAILS {
        let mut own = Queue::at(&queue.name).await;
        let number: u64 = redis::cmd("CLIENT").arg("ID").query_async(&mut own.redis).await.unwrap();
        let entry = tokio::time::timeout(Duration::from_secs(20), async {
            loop {
                if let Some(entry) = own.next(min_idle).await {
                    break entry;
                }
            }
        });
        let entry = entry.await.expect("no entry");
        assert_eq!(entry.deliveries(), Some(n + 1), "every delivery is settled once");
        let answer = service.deliver(entry.clone()).await;
        assert_eq!(n == 0, matches!(answer, Ok(Processed::First(()))), "{answer:?}");
        if n < FAILS {
            let mut kill = redis::cmd("CLIENT");
            kill.arg("KILL").arg("ID").arg(number);
            kill.query_async::<()>(&mut queue.redis).await.unwrap();
            assert!(own.settle(&entry, &answer).await.is_err(), "its connection is gone");
        } else {
            own.settle(&entry, &answer).await.unwrap();
        }
    }
    assert_eq!(queue.pending().await, 0);
    tokio::time::sleep(min_idle * 2).await;
    assert!(queue.next(min_idle).await.is_none());
    assert_eq!((runs.started(), shop.effects().await.len()), (1, 1));
}
