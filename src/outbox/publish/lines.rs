//! Events as lines of text.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::cloud_events::structured;
use super::{Answer, Publisher, Publishing};
use crate::outbox::PendingEvent;

/// Writes events to standard output, one CloudEvent in JSON a line, and acks a line that is written and flushed.
///
/// Lines never mix: one is written at a time, off the runtime's threads. A process that is killed in the middle of a line
/// leaves a torn one behind, which no reader takes for an event; the event is written anew after the restart.
pub struct LinesPublisher {
    output: Arc<Mutex<Output>>,
}

struct Output {
    writer: Box<dyn Write + Send>,
    /// The last line was not written to its end.
    torn: bool,
}

impl LinesPublisher {
    /// On standard output. Whatever else the process writes there mixes with the events.
    #[must_use]
    pub fn stdout() -> Self {
        Self::new(io::stdout())
    }

    /// On a file, a pipe, a socket.
    #[must_use]
    pub fn new(writer: impl Write + Send + 'static) -> Self {
        Self { output: Arc::new(Mutex::new(Output { writer: Box::new(writer), torn: false })) }
    }
}

impl Publisher for LinesPublisher {
    /// # Cancel safety
    /// A line that was begun is written to its end.
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        Box::pin(async move {
            let mut line = structured(&event);
            line.push(b'\n');
            // Waiting in line is done here, so that a reader who has stopped holds one thread and not one per event.
            let output = Arc::clone(&self.output).lock_owned().await;
            tokio::task::spawn_blocking(move || output.write(&line)).await.unwrap_or(Answer::Unknown)
        })
    }
}

trait Lines {
    fn write(self, line: &[u8]) -> Answer;
}

impl Lines for OwnedMutexGuard<Output> {
    fn write(mut self, line: &[u8]) -> Answer {
        if self.torn {
            // Ends the torn line, so that it spoils none but itself.
            if self.writer.write_all(b"\n").is_err() {
                return Answer::UNAVAILABLE;
            }
            self.torn = false;
        }
        let mut written = 0;
        while written < line.len() {
            match self.writer.write(&line[written..]) {
                Ok(0) => break,
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if written < line.len() {
            self.torn = written > 0;
            return if self.torn { Answer::Unknown } else { Answer::UNAVAILABLE };
        }
        match self.writer.flush() {
            Ok(()) => Answer::ACKED,
            Err(_) => Answer::Unknown,
        }
    }
}

impl fmt::Debug for LinesPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinesPublisher")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Locked;
    use std::time::SystemTime;

    use super::*;
    use crate::outbox::Event;
    use crate::outbox::publish::testing::pending;

    /// Takes so many bytes, then fails; what it took stays to be seen.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Locked<(Vec<u8>, usize)>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (taken, room) = &mut *self.0.lock().unwrap();
            let bytes = &bytes[..bytes.len().min(*room).min(7)];
            if bytes.is_empty() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            *room -= bytes.len();
            taken.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Pipe {
        fn room(&self, bytes: usize) {
            self.0.lock().unwrap().1 = bytes;
        }

        fn lines(&self) -> Vec<String> {
            String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap().lines().map(str::to_owned).collect()
        }
    }

    fn event(key: &str) -> Arc<PendingEvent> {
        pending(Event::new("out", "", "t", "/s").key(key), SystemTime::now(), 0).into()
    }

    #[tokio::test]
    async fn lines_never_mix_and_an_ack_is_a_whole_line() {
        let pipe = Pipe::default();
        pipe.room(usize::MAX);
        let publisher = LinesPublisher::new(pipe.clone());
        let keys: Vec<String> = (0..50).map(|n| format!("key-{n}")).collect();
        let answers = futures_util::future::join_all(keys.iter().map(|key| publisher.publish(event(key)))).await;
        assert!(answers.iter().all(|answer| *answer == Answer::ACKED));
        let mut seen: Vec<String> = pipe
            .lines()
            .iter()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["subject"].as_str().unwrap().to_owned()
            })
            .collect();
        seen.sort_by_key(|key| key[4..].parse::<u32>().unwrap());
        assert_eq!(seen, keys);
    }

    // M34
    #[tokio::test]
    async fn a_torn_line_is_unknown_and_spoils_no_other() {
        let pipe = Pipe::default();
        let publisher = LinesPublisher::new(pipe.clone());
        assert_eq!(publisher.publish(event("a")).await, Answer::UNAVAILABLE);
        pipe.room(10);
        assert_eq!(publisher.publish(event("a")).await, Answer::Unknown);
        assert_eq!(publisher.publish(event("a")).await, Answer::UNAVAILABLE);
        pipe.room(usize::MAX);
        assert_eq!(publisher.publish(event("a")).await, Answer::ACKED);
        let lines = pipe.lines();
        assert_eq!((lines.len(), lines[0].len()), (2, 10));
        assert!(lines[1].starts_with('{') && lines[1].ends_with('}'));
    }
}
