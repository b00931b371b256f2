//! Reads a body into memory, up to a limit.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;

use super::body::poll_as_bytes;

/// A body being read, and what has come of it. Whoever stops reading can send the rest as it comes.
pub(super) struct Collector<B: Body> {
    pub(super) body: Pin<Box<B>>,
    pub(super) read: VecDeque<Bytes>,
    length: usize,
}

/// How reading ended.
pub(super) enum Collected<E> {
    Whole(Bytes, Option<HeaderMap>),
    /// There is more than the limit.
    TooLarge,
    Broken(E),
}

impl<B: Body> Collector<B> {
    pub(super) fn new(body: B) -> Self {
        Self { body: Box::pin(body), read: VecDeque::new(), length: 0 }
    }

    /// Reads to the end or past `limit` bytes.
    ///
    /// Cancel safe: what has been read stays in `self`.
    pub(super) async fn collect(&mut self, limit: usize) -> Collected<B::Error> {
        loop {
            match poll_fn(|cx| poll_as_bytes(self.body.as_mut(), cx)).await {
                None => return Collected::Whole(self.concat(), None),
                Some(Err(error)) => return Collected::Broken(error),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        self.length += data.len();
                        // Most bodies are one frame and say so.
                        if self.read.is_empty() && self.length <= limit && self.body.is_end_stream() {
                            return Collected::Whole(data, None);
                        }
                        if !data.is_empty() {
                            self.read.push_back(data);
                        }
                        if self.length > limit {
                            return Collected::TooLarge;
                        }
                    }
                    // Trailers are the last frame; a body that stays open after them has nothing more to say.
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            return Collected::Whole(self.concat(), Some(trailers));
                        }
                    }
                },
            }
        }
    }

    fn concat(&mut self) -> Bytes {
        match (self.read.pop_front(), self.read.is_empty()) {
            (None, _) => Bytes::new(),
            (Some(only), true) => only,
            (Some(first), false) => {
                let mut all = BytesMut::with_capacity(self.length);
                all.extend_from_slice(&first);
                for chunk in self.read.drain(..) {
                    all.extend_from_slice(&chunk);
                }
                all.freeze()
            }
        }
    }
}
